// Backward pass: for each layer the weight gradient with the bias gradient in the same product, then the gradient of
// its input, masked by the ReLU that produced that input.
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {
namespace {

/// dW = dY' X with db the sums of dY over rows. dY [B, out], X [B, in].
template <class Real>
Product<Real> weight_gradient(Block<const Real> dy, Block<const Real> x, Block<Real> dw, Real* db) {
  Product<Real> p;
  p.op_a = Op::transpose;
  p.a = dy;
  p.b = x;
  p.c = dw;
  p.row_sums = db;
  return p;
}

/// dX = dY W, zero where `relu_output` <= 0 (no mask when its data is null). dY [B, out], W [out, in].
template <class Real>
Product<Real> input_gradient(Block<const Real> dy, Block<const Real> weight, Block<Real> dx,
                             Block<const Real> relu_output) {
  Product<Real> p;
  p.a = dy;
  p.b = weight;
  p.c = dx;
  p.mask = relu_output;
  return p;
}

}  // namespace

template <class Space, class Real>
void backward(const Space& space, const Network& network, const Real* parameters, const Activations<Space, Real>& a,
              Block<const Real> logit_gradient, const BackwardBuffers<Space, Real>& buffers, Real* gradient) {
  const int rows = logit_gradient.columns;
  const int width = network.shape.hidden2;
  const auto weight = [&](int tensor) { return network.matrix(parameters, tensor); };
  const auto weight_grad = [&](int tensor) { return network.matrix(gradient, tensor); };
  const auto bias_grad = [&](int tensor) { return gradient + network.layout[tensor].offset; };
  const auto activation = [&](const Matrix<Real, Space>& m) { return block_of(m).rows_from(0, rows); };

  // Output layers: dO = dL hidden, db = row sums of dL; dhidden = dL' O, through the ReLU.
  ProductBatch<Real> output_weights, output_inputs;
  for (int head = 0; head < heads; ++head) {
    const int hh = network.shape.head_hidden, first = network.head_first_logit(head);
    const Block<const Real> dl = logit_gradient.rows_from(first, network.head_outputs(head));
    const Block<Real> hidden = activation(a.hidden).columns_from(head * hh, hh);
    Product<Real> dw;
    dw.a = dl;
    dw.b = hidden;
    dw.c = weight_grad(network.output_weight[head]);
    dw.row_sums = bias_grad(network.output_bias) + first;
    output_weights.add(dw);
    Product<Real> dx;
    dx.op_a = Op::transpose;
    dx.a = dl;
    dx.b = weight(network.output_weight[head]);
    dx.c = block_of(buffers.hidden).columns_from(head * hh, hh);
    dx.mask = hidden;
    output_inputs.add(dx);
  }
  multiply(space, "vulpes::backward::output_weights", output_weights);
  multiply(space, "vulpes::backward::output_inputs", output_inputs);

  // Hidden layers of all heads, one matrix.
  const Block<Real> trunk_output = a.trunk_output().rows_from(0, rows);
  const Block<Real> dhidden = block_of(buffers.hidden), dh = block_of(buffers.trunk2), dblock = block_of(buffers.block);
  multiply(
      space, "vulpes::backward::hidden_weights",
      weight_gradient<Real>(dhidden, trunk_output, network.hidden_matrix(gradient), bias_grad(network.hidden_bias)));
  const bool no_blocks = network.shape.blocks == 0;
  multiply(space, "vulpes::backward::hidden_inputs",
           input_gradient<Real>(dhidden, network.hidden_matrix(parameters), dh,
                                no_blocks ? Block<const Real>(activation(a.trunk2)) : Block<const Real>{}));

  // Residual blocks: dh flows through the identity and, masked, through the block.
  const std::int64_t size = static_cast<std::int64_t>(a.rows) * width;
  for (int l = network.shape.blocks - 1; l >= 0; --l) {
    const Block<Real> relu{a.block_relu.data() + l * size, rows, width, width};
    const Block<Real> input =
        l == 0 ? activation(a.trunk2) : Block<Real>{a.block_output.data() + (l - 1) * size, rows, width, width};
    const Real *from = dh.data, *mask = relu.data;
    Real* to = dblock.data;
    Kokkos::parallel_for(
        "vulpes::backward::residual", range(space, static_cast<std::int64_t>(rows) * width),
        KOKKOS_LAMBDA(std::int64_t i) {
          const Real f = from[i];  // read either way, so that the loop has no branch
          to[i] = mask[i] > Real(0) ? f : Real(0);
        });
    multiply(
        space, "vulpes::backward::block_weights",
        weight_gradient<Real>(dblock, input, weight_grad(network.block_weight[l]), bias_grad(network.block_bias[l])));
    Product<Real> dx = input_gradient<Real>(dblock, weight(network.block_weight[l]), dh, {});
    dx.accumulate = true;
    if (l == 0) dx.mask = activation(a.trunk2);
    multiply(space, "vulpes::backward::block_inputs", dx);
  }

  // Trunk.
  multiply(space, "vulpes::backward::trunk2_weights",
           weight_gradient<Real>(dh, activation(a.trunk1), weight_grad(network.trunk_weight[1]),
                                 bias_grad(network.trunk_bias[1])));
  multiply(space, "vulpes::backward::trunk2_inputs",
           input_gradient<Real>(dh, weight(network.trunk_weight[1]), block_of(buffers.trunk1), activation(a.trunk1)));
  multiply(space, "vulpes::backward::trunk1_weights",
           weight_gradient<Real>(block_of(buffers.trunk1), activation(a.input), weight_grad(network.trunk_weight[0]),
                                 bias_grad(network.trunk_bias[0])));
}

#define INSTANTIATE(S)                                                                                      \
  template void backward<S, float>(const S&, const Network&, const float*, const Activations<S, float>&,    \
                                   Block<const float>, const BackwardBuffers<S, float>&, float*);           \
  template void backward<S, double>(const S&, const Network&, const double*, const Activations<S, double>&, \
                                    Block<const double>, const BackwardBuffers<S, double>&, double*);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
