// Targets, losses and the gradient on the logits, one launch.
#pragma once

#include "vulpes/core/schedule.hpp"
#include "vulpes/kernels/columns.hpp"
#include "vulpes/kernels/formulas/support.hpp"
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

/// What each row reports; rows of LossBuffers::rows_out.
enum RowOutput : int {
  loss_out,     ///< weighted loss
  c51_out,      ///< cross entropy, mean over branches
  mse_out,      ///< squared error, mean over branches
  kl_out,       ///< KL(m || p), mean over branches; cross entropy while blend is 0
  delta_out,    ///< what the priority is made of
  q_out,        ///< Q(s, a) of the chosen actions, mean over branches
  next_q_out,   ///< max_a Q(s', a), mean over branches
  clipped_out,  ///< target mass clipped at the ends
  row_outputs
};

/// Work space and results of the loss; columns are rows of the batch.
template <class Space, class Real>
struct LossBuffers {
  int rows = 0;
  Matrix<Real, Space> next_base;       ///< [D Z, B+] online V - mean A at s'
  Matrix<Real, Space> next_q;          ///< [A, B+] Q(s', a) of the choosing network
  Matrix<Real, Space> next_action;     ///< [D, B+] a*
  Matrix<Real, Space> target;          ///< [D Z, B+] target distribution m_d (all equal when aggregated)
  Matrix<Real, Space> next_prob;       ///< [D Z, B+] p_d(s', a*; target)
  Matrix<Real, Space> chosen;          ///< [D Z, B+] chosen logits at s, then the gradient on them
  Matrix<Real, Space> branch_out;      ///< [7 D, B+] each branch's losses, targets' entropies
  Matrix<Real, Space> logit_gradient;  ///< [logits, B+]
  Matrix<Real, Space> rows_out;        ///< [row_outputs, B+]

  LossBuffers() = default;
  LossBuffers(const Space& space, const NetworkShape& shape, int rows, const std::string& label);
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
};

/// Computes a*, the targets, per-row losses and dLoss/dlogits of
/// (1/B) sum_i w_i (1/D) sum_d [(1 - blend) (Q_d - y_d)^2 + blend CE(m_d, p_d)].
template <class Space, class Real>
void loss(const Space& space, const LossArguments<Real>& arguments, const LossBuffers<Space, Real>& buffers);

}  // namespace vulpes::kernels
