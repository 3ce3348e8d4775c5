// Forward pass: products with fused bias and ReLU, one addition a residual block, one grouped product for the outputs.
#include "vulpes/kernels/layer_runner.hpp"
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

/// h + f r for rows of stochastic depth, else h + r.
template <class Real>
struct AddBlock {
  const Real *h, *relu;
  Real* output;
  int depth_rows;
  KOKKOS_INLINE_FUNCTION void operator()(Real factor, int row, std::int64_t i) const {
    output[i] = h[i] + (row < depth_rows ? factor : Real(1)) * relu[i];
  }
};

/// All layers over up to two ranges of rows, which share a read of the weights.
template <class Runner, class Space, class Real>
void forward_rows(const Runner& run, const Network& network, const ForwardPass<Space, Real>& pass,
                  const RowRange* ranges, int count) {
  const NetworkShape& s = network.shape;
  const Activations<Space, Real>& a = pass.a;
  const auto weight = [&](int tensor) { return network.matrix(pass.parameters, tensor); };
  const auto bias = [&](int tensor) { return pass.parameters + network.layout[tensor].offset; };
  const auto layer = [&](const char* label, Block<Real> x, Block<const Real> w, int b, Block<Real> y) {
    ProductBatch<Real> batch;
    for (int i = 0; i < count; ++i) {
      const RowRange r = ranges[i];
      batch.add(relu_layer<Real>(x.rows_from(r.begin, r.count), w, bias(b), y.rows_from(r.begin, r.count)));
      batch.products[i].precision = network.forward;
    }
    run.multiply(label, batch);
  };

  layer("vulpes::forward::trunk1", block_of(a.input), weight(network.trunk_weight[0]), network.trunk_bias[0],
        block_of(a.trunk1));
  layer("vulpes::forward::trunk2", block_of(a.trunk1), weight(network.trunk_weight[1]), network.trunk_bias[1],
        block_of(a.trunk2));

  const int width = s.hidden2;
  const std::int64_t size = static_cast<std::int64_t>(a.rows) * width;
  Block<Real> h = block_of(a.trunk2);
  for (int l = 0; l < s.blocks; ++l) {
    const Block<Real> relu{a.block_relu.data() + l * size, a.rows, width, width};
    const Block<Real> output{a.block_output.data() + l * size, a.rows, width, width};
    layer("vulpes::forward::block", h, weight(network.block_weight[l]), network.block_bias[l], relu);
    const AddBlock<Real> add{h.data, relu.data, output.data, pass.depth.rows};
    const BlockFactor<Real> factor{pass.depth, l + 1, s.blocks};
    for (int i = 0; i < count; ++i) run.each_element("vulpes::forward::residual", ranges[i], width, factor, add);
    h = output;
  }

  layer("vulpes::forward::hidden", h, network.hidden_matrix(pass.parameters), network.hidden_bias, block_of(a.hidden));

  // logits [outputs, rows] = O [outputs, Hh] hidden' [Hh, rows], one product a head.
  ProductBatch<Real> outputs;
  for (int i = 0; i < count; ++i) {
    const RowRange r = ranges[i];
    for (int head = 0; head < heads; ++head) {
      Product<Real> p;
      p.op_b = Op::transpose;
      p.precision = network.forward;
      p.a = weight(network.output_weight[head]);
      p.b = block_of(a.hidden).rows_from(r.begin, r.count).columns_from(head * s.head_hidden, s.head_hidden);
      p.c = a.logit_columns(r.begin, r.count).rows_from(network.head_first_logit(head), network.head_outputs(head));
      outputs.add(p);
    }
  }
  run.multiply("vulpes::forward::outputs", outputs);
}

}  // namespace

template <class Space, class Real>
void forward(const Space& space, const Network& network, std::initializer_list<ForwardPass<Space, Real>> passes) {
  const char* label = passes.size() == 1 ? "vulpes::forward" : "vulpes::forward::passes";
  if constexpr (threads_multiply<Space>) {
    const int parts = space.concurrency();
    Kokkos::parallel_for(label, range(space, parts), [&](std::int64_t part) {
      for (const ForwardPass<Space, Real>& pass : passes) {
        const RowRange own = part_of_rows(pass.rows, row_multiple, static_cast<int>(part), parts);
        const RowRange ranges[2] = {own, {pass.rows + own.begin, own.count}};
        if (own.count > 0) forward_rows(ThreadRunner{}, network, pass, ranges, pass.groups);
      }
    });
  } else {
    const Kokkos::Profiling::ScopedRegion region(label);
    for (const ForwardPass<Space, Real>& pass : passes) {
      const RowRange all{0, pass.groups * pass.rows};
      forward_rows(LaunchRunner<Space>{space}, network, pass, &all, 1);
    }
  }
}

#define INSTANTIATE(S)                                                                                     \
  template void forward<S, float>(const S&, const Network&, std::initializer_list<ForwardPass<S, float>>); \
  template void forward<S, double>(const S&, const Network&, std::initializer_list<ForwardPass<S, double>>);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
