// Targets, all losses on logits and their gradient, one launch.
#pragma once

#include "vulpes/core/schedule.hpp"
#include "vulpes/kernels/columns.hpp"
#include "vulpes/kernels/formulas/exposure_label.hpp"
#include "vulpes/kernels/formulas/injected_fault.hpp"
#include "vulpes/kernels/formulas/support.hpp"
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

/// What each row reports; rows of LossBuffers::rows_out.
enum RowOutput : int {
  loss_out,       ///< the row's share of the loss: temporal difference with its weight, CQL, auxiliary loss
  c51_out,        ///< cross entropy, mean over branches
  mse_out,        ///< squared error, mean over branches
  kl_out,         ///< KL(m || p), mean over branches; cross entropy while blend is 0
  delta_out,      ///< what the priority is made of
  q_out,          ///< Q(s, a) of the chosen actions, mean over branches
  next_q_out,     ///< max_a Q(s', a), mean over branches
  clipped_out,    ///< target mass clipped at the ends
  cql_out,        ///< log-sum-exp Q - Q(a), mean over branches, before its weight; 0 when off
  auxiliary_out,  ///< cross entropy of the exposure label, before its weight; 0 when off
  diversity_out,  ///< mean squared cosine of two branches' hidden activations, before its weight; 0 when off
  row_outputs
};

/// Work space and results of the loss; columns are rows of the batch.
template <class Space, class Real>
struct LossBuffers {
  int rows = 0;
  /// Keep next_q, next_action, target, q, exposure_label and exposure_policy also on a device. Otherwise it has only
  /// logit_gradient and rows_out, and the others are in a tile's scratch.
  bool trace = false;
  Matrix<Real, Space> next_base;        ///< [D Z, B+] V - mean A of the choosing network at s'
  Matrix<Real, Space> base;             ///< [D Z, B+] and of the online network at s
  Matrix<Real, Space> next_q;           ///< [A, B+] Q(s', a) of the choosing network
  Matrix<Real, Space> next_action;      ///< [D, B+] a*
  Matrix<Real, Space> target;           ///< [D Z, B+] target distribution m_d (all equal when aggregated)
  Matrix<Real, Space> next_prob;        ///< [D Z, B+] p_d(s', a*; target)
  Matrix<Real, Space> chosen;           ///< [D Z, B+] chosen logits at s, then the gradient on them
  Matrix<Real, Space> probability;      ///< [D Z, B+] and their softmax
  Matrix<Real, Space> q;                ///< [A, B+] Q(s, a); all branches with CQL, exposure with the auxiliary loss
  Matrix<Real, Space> q_slope;          ///< [A, B+] 1 / sum of an action's exponentials, then dLoss/dQ(s, a) times it
  Matrix<Real, Space> cql_slope;        ///< [A, B+] CQL: softmax_a Q(s, a) - 1{a taken}
  Matrix<Real, Space> exposure_label;   ///< [A_0, B+] auxiliary loss: label
  Matrix<Real, Space> exposure_policy;  ///< [A_0, B+] and softmax of Q it is compared with
  Matrix<Real, Space> branch_out;       ///< [15 D, B+] each branch's losses, targets' entropies and the like
  Matrix<Real, Space> logit_gradient;   ///< [logits, B+]
  Matrix<Real, Space> rows_out;         ///< [row_outputs, B+]

  LossBuffers() = default;
  LossBuffers(const Space& space, const NetworkShape& shape, int rows, const std::string& label, bool trace = false);
};

/// The exposure auxiliary loss (formulas/exposure_label.hpp), once a row, without importance weight.
template <class Real>
struct Auxiliary {
  bool on = false;
  Schedule weight;
  const double* multiplier = nullptr;  ///< times the weight, device memory; null: 1
  Real temperature = 1;                ///< tau of softmax(Q / tau), > 0
  ExposureLabelRules label;
};

template <class Real>
struct LossArguments {
  NetworkShape shape;
  Support<Real> support;
  int rows = 0;                     ///< B, a multiple of row_multiple
  Columns<const Real> logits;       ///< online network at s
  Columns<const Real> next_select;  ///< network that chooses a* at s': online (double DQN) or target
  Columns<const Real> next_target;  ///< target network at s'
  const Real* bias = nullptr;       ///< output biases of those three networks, [logits]
  const Real* select_bias = nullptr;
  const Real* target_bias = nullptr;
  Columns<const std::uint8_t> actions;  ///< [D, B]
  const Real* rewards = nullptr;        ///< R, [B]
  const Real* discounts = nullptr;      ///< gamma^k, 0 after a terminal, [B]
  const Real* weights = nullptr;        ///< importance weights, [B]
  const std::uint64_t* iteration = nullptr;
  Schedule blend;           ///< 0: MSE, 1: C51
  bool per_branch = false;  ///< each branch its own target instead of the mean
  Real cql = 0;             ///< weight of CQL (formulas/cql.hpp); 0: off
  Auxiliary<Real> auxiliary;
  const Real* next_returns = nullptr;  ///< [B] close[t + 1] / close[t] - 1; read by the auxiliary loss
  const Real* exposures = nullptr;     ///< [B] exposure before the decision; read by the auxiliary loss
  InjectedFault fault;
  bool diversity = false;  ///< diversity_out is written by a launch of its own (diversity.hpp); otherwise set to 0
};

/// Computes a*, the targets, per-row losses and dLoss/dlogits of
/// (1/B) sum_i { w_i (1/D) sum_d [(1 - blend) (Q_d - y_d)^2 + blend CE(m_d, p_d)]
///               + cql (1/D) sum_d [log sum_a exp Q_d(s, a) - Q_d(s, a_d)] + weight CE(label, softmax(Q_0 / tau)) }.
/// A part that is off costs nothing. A row whose loss is NaN or infinite gets a gradient of NaN.
template <class Space, class Real>
void loss(const Space& space, const LossArguments<Real>& arguments, const LossBuffers<Space, Real>& buffers);

}  // namespace vulpes::kernels
