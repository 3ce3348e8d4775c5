// The network: its shape, its tensors in the flat buffer, and the buffers of one forward pass.
//
//   h1 = ReLU(W1 x + b1), h2 = ReLU(W2 h1 + b2), then for each residual block l: h <- h + (m_l / q_l) ReLU(W_l h + b_l)
//   per head (value, then each branch): hidden = ReLU(H h + b), logits = O hidden + b_out
//
// Hidden activations are row-major [rows, width]. Logits are transposed, [logit, row]: the atoms of neighbouring rows
// are neighbours in memory, so that per-row formulas vectorise over rows on a host core and coalesce on a device. Their
// bias is added by whoever reads them.
#pragma once

#include <array>
#include <initializer_list>

#include "vulpes/core/gemm.hpp"
#include "vulpes/core/parameter_layout.hpp"
#include "vulpes/kernels/formulas/stochastic_depth.hpp"

namespace vulpes::kernels {

/// Branches of the action: exposure, order type, urgency.
inline constexpr int branches = 3;
inline constexpr int heads = branches + 1;
inline constexpr std::array<int, branches> branch_actions = {9, 3, 3};
inline constexpr int total_actions = 9 + 3 + 3;

KOKKOS_INLINE_FUNCTION constexpr int actions_of(int branch) { return branch == 0 ? 9 : 3; }
/// Index of a branch's first action among all.
KOKKOS_INLINE_FUNCTION constexpr int first_action(int branch) { return branch == 0 ? 0 : 6 + 3 * branch; }

KOKKOS_INLINE_FUNCTION constexpr int branch_of(int action) { return action < 9 ? 0 : (action < 12 ? 1 : 2); }

struct NetworkShape {
  int state = 0;        ///< S, a multiple of 8
  int hidden1 = 0;      ///< H1
  int hidden2 = 0;      ///< H2
  int blocks = 0;       ///< L
  int head_hidden = 0;  ///< Hh
  int atoms = 0;        ///< Z

  KOKKOS_INLINE_FUNCTION int logits() const { return (1 + total_actions) * atoms; }
  KOKKOS_INLINE_FUNCTION int hidden_width() const { return heads * head_hidden; }
  /// First logit of action `a` of branch `d`; the value head's logits come first.
  KOKKOS_INLINE_FUNCTION int first_logit(int d, int a) const { return (1 + first_action(d) + a) * atoms; }
  /// Multiply-adds of a forward pass for one row.
  double multiply_adds() const;
  bool operator==(const NetworkShape&) const = default;
};

/// Widths must be multiples of 8 so that neighbouring tensors of a group form one matrix.
inline constexpr int width_multiple = 8;

/// Where each tensor is; offsets into a buffer of `layout`.
struct Network {
  NetworkShape shape;
  Precision forward = Precision::fp32, backward = Precision::fp32;  ///< of the products
  ParameterLayout layout;
  // Indices into layout.tensors().
  int trunk_weight[2], trunk_bias[2];
  std::array<int, 64> block_weight, block_bias;
  int hidden_weight[heads];  ///< contiguous: together one matrix [heads * Hh, H2]
  int hidden_bias;           ///< [heads * Hh]
  int output_weight[heads];  ///< [A_d * Z, Hh]
  int output_bias;           ///< [logits]

  explicit Network(const NetworkShape& shape);

  /// The weight matrix (or vector) `tensor` as an alias into `buffer`.
  template <class T>
  Block<T> matrix(T* buffer, int tensor) const {
    const TensorSlice& t = layout[tensor];
    return {buffer + t.offset, t.rows, t.columns, t.columns};
  }
  /// All heads' hidden weights as one matrix.
  template <class T>
  Block<T> hidden_matrix(T* buffer) const {
    Block<T> b = matrix(buffer, hidden_weight[0]);
    b.rows = shape.hidden_width();
    return b;
  }
  int head_outputs(int head) const { return shape.atoms * (head == 0 ? 1 : branch_actions[head - 1]); }
  int head_first_logit(int head) const { return head == 0 ? 0 : shape.first_logit(head - 1, 0); }
};

/// Rows that one host pack or device tile handles at once; row counts of activations are multiples of it.
inline constexpr int row_multiple = 16;
/// Extra columns of every transposed buffer [item, row]: a row length that is a power of two would put a column's
/// elements into few cache sets.
inline constexpr int column_padding = 16;
inline int padded_rows(int rows) { return (rows + row_multiple - 1) / row_multiple * row_multiple; }

/// A whole matrix View as a block.
template <class T, class... Properties>
Block<T> block_of(const Kokkos::View<T**, Properties...>& v) {
  return {v.data(), static_cast<int>(v.extent(0)), static_cast<int>(v.extent(1)), static_cast<int>(v.extent(1))};
}

/// Buffers of a forward pass over `rows` rows.
template <class Space, class Real>
struct Activations {
  int rows = 0;
  Matrix<Real, Space> input;                                                 ///< [rows, S]
  Matrix<Real, Space> trunk1;                                                ///< [rows, H1]
  Matrix<Real, Space> trunk2;                                                ///< [rows, H2]
  Kokkos::View<Real***, Kokkos::LayoutRight, MemoryOf<Space>> block_relu;    ///< [L, rows, H2]: ReLU(W_l h + b_l)
  Kokkos::View<Real***, Kokkos::LayoutRight, MemoryOf<Space>> block_output;  ///< [L, rows, H2]
  Matrix<Real, Space> hidden;                                                ///< [rows, heads * Hh]
  Matrix<Real, Space> logits;  ///< [logits, rows + column_padding], without bias

  Activations() = default;
  /// Zero-filled; `rows` is rounded up to a multiple of row_multiple.
  Activations(const Space& space, const NetworkShape& shape, int rows, const std::string& label);

  /// Logits of rows [begin, begin + count), [logits, count].
  Block<Real> logit_columns(int begin, int count) const { return block_of(logits).columns_from(begin, count); }
  /// Output of the trunk, [rows, H2].
  Block<Real> trunk_output() const;
};

/// One network over rows [0, groups * rows) of its buffers' input.
template <class Space, class Real>
struct ForwardPass {
  const Real* parameters = nullptr;  ///< a buffer of network.layout
  Activations<Space, Real> a;
  int rows = 0;    ///< a multiple of row_multiple
  int groups = 1;  ///< 1 or 2: blocks of `rows` rows, as s and s' of a batch; a host thread gets the same rows of each
  StochasticDepth depth;
};

/// The passes of a step, independent of each other. On a host one launch: each thread takes its rows of every pass
/// through all layers, as no row depends on another. On a device every layer is a launch, pass after pass.
template <class Space, class Real>
void forward(const Space& space, const Network& network, std::initializer_list<ForwardPass<Space, Real>> passes);

/// One pass over rows [0, rows) of `a.input`, with whole residual blocks (m_l / q_l = 1).
template <class Space, class Real>
void forward(const Space& space, const Network& network, const Real* parameters, const Activations<Space, Real>& a,
             int rows) {
  forward<Space, Real>(space, network, {{parameters, a, rows, 1, {}}});
}

/// Buffers of a backward pass over B rows.
template <class Space, class Real>
struct BackwardBuffers {
  Matrix<Real, Space> hidden;  ///< [B, heads * Hh]
  Matrix<Real, Space> trunk2;  ///< [B, H2] gradient of a block's output
  Matrix<Real, Space> block;   ///< [L * B, H2] gradient inside each block
  Matrix<Real, Space> trunk1;  ///< [B, H1]

  BackwardBuffers() = default;
  BackwardBuffers(const Space& space, const NetworkShape& shape, int rows, const std::string& label);
};

template <class Real>
struct BackwardOptions {
  /// As in the forward pass.
  StochasticDepth depth;
  /// Factor on the trunk's gradient where it leaves the heads' first layers; 1 / (D + 1) in Tavakoli, Pardo & Kormushev
  /// 2018, section "gradient rescaling".
  Real trunk_scale = 1;
  /// `buffers.hidden` holds the gradient of another loss with respect to the heads' hidden activations, after their
  /// ReLU: it is added to the one from the logits.
  bool hidden_gradient_added = false;
};

/// Gradient of the loss with respect to all parameters, written (not added) to `gradient`, from
/// `logit_gradient` [logits, B] (a block: columns may be padded), for the first B rows of a forward pass `a`. Two
/// launches on a host: gradients of all layers' inputs, where each thread takes its rows through all layers, and those
/// of all weights.
template <class Space, class Real>
void backward(const Space& space, const Network& network, const Real* parameters, const Activations<Space, Real>& a,
              Block<const Real> logit_gradient, const BackwardBuffers<Space, Real>& buffers, Real* gradient,
              const BackwardOptions<Real>& options = {});

}  // namespace vulpes::kernels
