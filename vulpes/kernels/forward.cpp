// Forward pass: products with fused bias and ReLU, one addition a residual block, one grouped product for the outputs.
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {
namespace {

/// Y = X W' + b, then ReLU. X [rows, in], W [out, in], b [out], Y [rows, out].
template <class Real>
Product<Real> relu_layer(Block<const Real> x, Block<const Real> weight, const Real* bias, Block<Real> y) {
  Product<Real> p;
  p.op_b = Op::transpose;
  p.a = x;
  p.b = weight;
  p.c = y;
  p.column_bias = bias;
  p.relu = true;
  return p;
}

template <class Real>
Block<Real> top(Block<Real> b, int rows) {
  return b.rows_from(0, rows);
}

}  // namespace

template <class Space, class Real>
void forward(const Space& space, const Network& network, const Real* parameters, const Activations<Space, Real>& a,
             int rows) {
  const auto weight = [&](int tensor) { return network.matrix(parameters, tensor); };
  const auto bias = [&](int tensor) { return parameters + network.layout[tensor].offset; };

  multiply(space, "vulpes::forward::trunk1",
           relu_layer<Real>(top(block_of(a.input), rows), weight(network.trunk_weight[0]), bias(network.trunk_bias[0]),
                            top(block_of(a.trunk1), rows)));
  multiply(space, "vulpes::forward::trunk2",
           relu_layer<Real>(top(block_of(a.trunk1), rows), weight(network.trunk_weight[1]), bias(network.trunk_bias[1]),
                            top(block_of(a.trunk2), rows)));

  const int width = network.shape.hidden2;
  const std::int64_t size = static_cast<std::int64_t>(a.rows) * width;
  Block<Real> h = top(block_of(a.trunk2), rows);
  for (int l = 0; l < network.shape.blocks; ++l) {
    const Block<Real> relu{a.block_relu.data() + l * size, rows, width, width};
    const Block<Real> output{a.block_output.data() + l * size, rows, width, width};
    multiply(space, "vulpes::forward::block",
             relu_layer<Real>(h, weight(network.block_weight[l]), bias(network.block_bias[l]), relu));
    const Real *from = h.data, *add = relu.data;
    Real* to = output.data;
    Kokkos::parallel_for(
        "vulpes::forward::residual", range(space, static_cast<std::int64_t>(rows) * width),
        KOKKOS_LAMBDA(std::int64_t i) { to[i] = from[i] + add[i]; });
    h = output;
  }

  multiply(
      space, "vulpes::forward::hidden",
      relu_layer<Real>(h, network.hidden_matrix(parameters), bias(network.hidden_bias), top(block_of(a.hidden), rows)));

  // logits [outputs, rows] = O [outputs, Hh] hidden' [Hh, rows], one product a head.
  ProductBatch<Real> outputs;
  for (int head = 0; head < heads; ++head) {
    Product<Real> p;
    p.op_b = Op::transpose;
    p.a = weight(network.output_weight[head]);
    p.b = top(block_of(a.hidden), rows).columns_from(head * network.shape.head_hidden, network.shape.head_hidden);
    p.c = a.logit_columns(0, rows).rows_from(network.head_first_logit(head), network.head_outputs(head));
    outputs.add(p);
  }
  multiply(space, "vulpes::forward::outputs", outputs);
}

#define INSTANTIATE(S)                                                                                        \
  template void forward<S, float>(const S&, const Network&, const float*, const Activations<S, float>&, int); \
  template void forward<S, double>(const S&, const Network&, const double*, const Activations<S, double>&, int);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
