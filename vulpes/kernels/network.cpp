#include "vulpes/kernels/network.hpp"

#include "vulpes/core/errors.hpp"

namespace vulpes::kernels {
namespace {
constexpr const char* head_names[heads] = {"value", "exposure", "order", "urgency"};
}

double NetworkShape::multiply_adds() const {
  const double h1 = hidden1, h2 = hidden2;
  return h1 * state + h2 * h1 + blocks * h2 * h2 + static_cast<double>(hidden_width()) * h2 +
         static_cast<double>(logits()) * head_hidden;
}

Network::Network(const NetworkShape& s) : shape(s) {
  for (const int width : {s.state, s.hidden1, s.hidden2, s.head_hidden}) {
    throw_if<InputError>(width < width_multiple || width % width_multiple != 0,
                         "network: width " + std::to_string(width) +
                             " is not a multiple of 8; change network.hidden1, "
                             "hidden2 or head_hidden");
  }
  throw_if<InputError>(s.blocks > static_cast<int>(block_weight.size()), "network.residual_blocks: at most 64");
  const auto linear = [&](const std::string& name, int out, int in, int& weight, int& bias) {
    weight = layout.add(name + ".weight", out, in, true);
    bias = layout.add(name + ".bias", 1, out, false);
  };
  linear("trunk.0", s.hidden1, s.state, trunk_weight[0], trunk_bias[0]);
  linear("trunk.1", s.hidden2, s.hidden1, trunk_weight[1], trunk_bias[1]);
  for (int l = 0; l < s.blocks; ++l) {
    linear("block." + std::to_string(l), s.hidden2, s.hidden2, block_weight[l], block_bias[l]);
  }
  for (int h = 0; h < heads; ++h) {
    hidden_weight[h] = layout.add(std::string("hidden.") + head_names[h] + ".weight", s.head_hidden, s.hidden2, true);
  }
  hidden_bias = layout.add("hidden.bias", 1, s.hidden_width(), false);
  for (int h = 0; h < heads; ++h) {
    output_weight[h] =
        layout.add(std::string("output.") + head_names[h] + ".weight", head_outputs(h), s.head_hidden, true);
  }
  output_bias = layout.add("output.bias", 1, s.logits(), false);
}

template <class Space, class Real>
Activations<Space, Real>::Activations(const Space& space, const NetworkShape& s, int count, const std::string& label)
    : rows(padded_rows(count)) {
  using Three = Kokkos::View<Real***, Kokkos::LayoutRight, MemoryOf<Space>>;
  input = allocate_zeroed<Matrix<Real, Space>>(space, label + "::input", rows, s.state);
  trunk1 = allocate_zeroed<Matrix<Real, Space>>(space, label + "::trunk1", rows, s.hidden1);
  trunk2 = allocate_zeroed<Matrix<Real, Space>>(space, label + "::trunk2", rows, s.hidden2);
  block_relu = allocate_zeroed<Three>(space, label + "::block_relu", s.blocks, rows, s.hidden2);
  block_output = allocate_zeroed<Three>(space, label + "::block_output", s.blocks, rows, s.hidden2);
  hidden = allocate_zeroed<Matrix<Real, Space>>(space, label + "::hidden", rows, s.hidden_width());
  logits = allocate_zeroed<Matrix<Real, Space>>(space, label + "::logits", s.logits(), rows + column_padding);
}

template <class Space, class Real>
Block<Real> Activations<Space, Real>::trunk_output() const {
  const int blocks = static_cast<int>(block_output.extent(0)), width = static_cast<int>(trunk2.extent(1));
  Real* data = blocks == 0 ? trunk2.data() : block_output.data() + static_cast<std::int64_t>(blocks - 1) * rows * width;
  return {data, rows, width, width};
}

template <class Space, class Real>
BackwardBuffers<Space, Real>::BackwardBuffers(const Space& space, const NetworkShape& s, int rows,
                                              const std::string& label)
    : hidden(allocate_zeroed<Matrix<Real, Space>>(space, label + "::hidden", rows, s.hidden_width())),
      trunk2(allocate_zeroed<Matrix<Real, Space>>(space, label + "::trunk2", rows, s.hidden2)),
      block(allocate_zeroed<Matrix<Real, Space>>(space, label + "::block", s.blocks * rows, s.hidden2)),
      trunk1(allocate_zeroed<Matrix<Real, Space>>(space, label + "::trunk1", rows, s.hidden1)) {}

#define INSTANTIATE(S)                       \
  template struct Activations<S, float>;     \
  template struct Activations<S, double>;    \
  template struct BackwardBuffers<S, float>; \
  template struct BackwardBuffers<S, double>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
