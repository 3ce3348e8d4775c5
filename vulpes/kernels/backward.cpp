// Backward pass: the gradients of all layers' inputs, from the logits down to the first layer's output, then the
// gradients of all weights with those of their biases. A layer's input gradient is masked by the ReLU that produced
// that input.
#include "vulpes/kernels/layer_runner.hpp"
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

/// f dh through a block's ReLU for rows of stochastic depth, else dh.
template <class Real>
struct EnterBlock {
  const Real *dh, *relu;
  Real* inside;
  int depth_rows;
  KOKKOS_INLINE_FUNCTION void operator()(Real factor, int row, std::int64_t i) const {
    const Real d = (row < depth_rows ? factor : Real(1)) * dh[i];  // read either way, so that the loop has no branch
    inside[i] = relu[i] > Real(0) ? d : Real(0);
  }
};

/// Where a backward pass reads and writes.
template <class Space, class Real>
struct BackwardPass {
  const Network& network;
  const Real* parameters;
  const Activations<Space, Real>& a;
  Block<const Real> logit_gradient;  ///< [logits, B]
  const BackwardBuffers<Space, Real>& buffers;
  Real* gradient;
  const BackwardOptions<Real>& options;

  int rows() const { return logit_gradient.columns; }
  Block<Real> matrix(const Matrix<Real, Space>& m) const { return block_of(m).rows_from(0, rows()); }
  Block<const Real> weight(int tensor) const { return network.matrix(parameters, tensor); }
  Block<Real> weight_grad(int tensor) const { return network.matrix(gradient, tensor); }
  Real* bias_grad(int tensor) const { return gradient + network.layout[tensor].offset; }
  Block<const Real> head_gradient(int head) const {
    return logit_gradient.rows_from(network.head_first_logit(head), network.head_outputs(head));
  }
  Block<Real> block_relu(int l) const { return activation(a.block_relu, l); }
  Block<Real> block_input(int l) const { return l == 0 ? matrix(a.trunk2) : activation(a.block_output, l - 1); }
  Block<Real> inside_block(int l) const { return block_of(buffers.block).rows_from(l * rows(), rows()); }

 private:
  template <class View>
  Block<Real> activation(const View& all, int l) const {
    const int width = network.shape.hidden2;
    return {all.data() + static_cast<std::int64_t>(l) * a.rows * width, rows(), width, width};
  }
};

/// Gradients of every layer's input for a range of rows.
template <class Runner, class Space, class Real>
void input_gradients(const Runner& run, const BackwardPass<Space, Real>& pass, RowRange range) {
  const Network& network = pass.network;
  const NetworkShape& s = network.shape;
  const auto own = [&](auto block) { return block.rows_from(range.begin, range.count); };
  const auto multiply = [&](const char* label, const Product<Real>& p) {
    ProductBatch<Real> batch;
    batch.add(p);
    batch.products[0].precision = network.backward;
    run.multiply(label, batch);
  };
  const Block<Real> dhidden = own(block_of(pass.buffers.hidden)), dh = own(block_of(pass.buffers.trunk2));

  // Output layers: dhidden = dL' O, through the ReLU.
  ProductBatch<Real> outputs;
  for (int head = 0; head < heads; ++head) {
    const int hh = s.head_hidden;
    Product<Real> p;
    p.precision = network.backward;
    p.op_a = Op::transpose;
    p.a = pass.head_gradient(head).columns_from(range.begin, range.count);
    p.b = pass.weight(network.output_weight[head]);
    p.c = dhidden.columns_from(head * hh, hh);
    p.accumulate = pass.options.hidden_gradient_added;
    p.mask = own(pass.matrix(pass.a.hidden)).columns_from(head * hh, hh);
    outputs.add(p);
  }
  run.multiply("vulpes::backward::output_inputs", outputs);

  // Hidden layers of all heads, one matrix.
  const Block<const Real> trunk2 = own(pass.matrix(pass.a.trunk2));
  Product<Real> hidden = input_gradient<Real>(dhidden, network.hidden_matrix(pass.parameters), dh, {});
  hidden.scale = pass.options.trunk_scale;
  if (s.blocks == 0) hidden.mask = trunk2;
  multiply("vulpes::backward::hidden_inputs", hidden);

  // Residual blocks: dh flows through the identity and, masked, through the block.
  for (int l = s.blocks - 1; l >= 0; --l) {
    const Block<Real> inside = pass.inside_block(l);
    run.each_element(
        "vulpes::backward::residual", range, s.hidden2, BlockFactor<Real>{pass.options.depth, l + 1, s.blocks},
        EnterBlock<Real>{pass.buffers.trunk2.data(), pass.block_relu(l).data, inside.data, pass.options.depth.rows});
    Product<Real> p = input_gradient<Real>(own(inside), pass.weight(network.block_weight[l]), dh, {});
    p.accumulate = true;
    if (l == 0) p.mask = trunk2;
    multiply("vulpes::backward::block_inputs", p);
  }

  multiply("vulpes::backward::trunk2_inputs",
           input_gradient<Real>(dh, pass.weight(network.trunk_weight[1]), own(block_of(pass.buffers.trunk1)),
                                own(pass.matrix(pass.a.trunk1))));
}

/// Gradients of all weights and biases, in as few launches as batches can hold.
template <class Space, class Real>
void weight_gradients(const Space& space, const BackwardPass<Space, Real>& pass) {
  const Network& network = pass.network;
  ProductBatch<Real> batch;
  const auto launch = [&] {
    multiply(space, "vulpes::backward::weights", batch);
    batch.count = 0;
  };
  const auto add = [&](const Product<Real>& p) {
    if (batch.full()) launch();
    batch.add(p);
    batch.products[batch.count - 1].precision = network.backward;
  };
  const int hh = network.shape.head_hidden;
  for (int head = 0; head < heads; ++head) {  // dO = dL hidden
    Product<Real> p;
    p.a = pass.head_gradient(head);
    p.b = pass.matrix(pass.a.hidden).columns_from(head * hh, hh);
    p.c = pass.weight_grad(network.output_weight[head]);
    p.row_sums = pass.bias_grad(network.output_bias) + network.head_first_logit(head);
    add(p);
  }
  add(weight_gradient<Real>(pass.matrix(pass.buffers.hidden), pass.block_input(network.shape.blocks),
                            network.hidden_matrix(pass.gradient), pass.bias_grad(network.hidden_bias)));
  for (int l = network.shape.blocks - 1; l >= 0; --l) {
    add(weight_gradient<Real>(pass.inside_block(l), pass.block_input(l), pass.weight_grad(network.block_weight[l]),
                              pass.bias_grad(network.block_bias[l])));
  }
  add(weight_gradient<Real>(pass.matrix(pass.buffers.trunk2), pass.matrix(pass.a.trunk1),
                            pass.weight_grad(network.trunk_weight[1]), pass.bias_grad(network.trunk_bias[1])));
  add(weight_gradient<Real>(pass.matrix(pass.buffers.trunk1), pass.matrix(pass.a.input),
                            pass.weight_grad(network.trunk_weight[0]), pass.bias_grad(network.trunk_bias[0])));
  launch();
}

}  // namespace

template <class Space, class Real>
void backward(const Space& space, const Network& network, const Real* parameters, const Activations<Space, Real>& a,
              Block<const Real> logit_gradient, const BackwardBuffers<Space, Real>& buffers, Real* gradient,
              const BackwardOptions<Real>& options) {
  const BackwardPass<Space, Real> pass{network, parameters, a, logit_gradient, buffers, gradient, options};
  if constexpr (threads_multiply<Space>) {
    const int parts = space.concurrency();
    Kokkos::parallel_for("vulpes::backward::inputs", range(space, parts), [&](std::int64_t part) {
      const RowRange own = part_of_rows(pass.rows(), row_multiple, static_cast<int>(part), parts);
      if (own.count > 0) input_gradients(ThreadRunner{}, pass, own);
    });
  } else {
    const Kokkos::Profiling::ScopedRegion region("vulpes::backward::inputs");
    input_gradients(LaunchRunner<Space>{space}, pass, RowRange{0, pass.rows()});
  }
  weight_gradients(space, pass);
}

#define INSTANTIATE(S)                                                                                      \
  template void backward<S, float>(const S&, const Network&, const float*, const Activations<S, float>&,    \
                                   Block<const float>, const BackwardBuffers<S, float>&, float*,            \
                                   const BackwardOptions<float>&);                                          \
  template void backward<S, double>(const S&, const Network&, const double*, const Activations<S, double>&, \
                                    Block<const double>, const BackwardBuffers<S, double>&, double*,        \
                                    const BackwardOptions<double>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
