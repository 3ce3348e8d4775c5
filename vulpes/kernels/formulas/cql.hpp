// Conservative Q-learning: Q of actions that the data lacks is pressed down, Q of the action taken is held up.
//
//   L = log sum_a exp Q(s, a) - Q(s, a_taken)          dL / dQ(s, a) = softmax_a(Q) - 1{a = a_taken}
//
// CQL(H) (Kumar et al. 2020, "Conservative Q-learning for offline reinforcement learning", equation 4), one branch at a
// time. Shapes: Q of one branch and row, [A_d]. Flops: A_d (11 + an exponential) + a logarithm.
#pragma once

#include "vulpes/kernels/formulas/categorical.hpp"

namespace vulpes::kernels {

/// 1 in the rows whose `taken` action is `action`, 0 in the others.
template <class V>
KOKKOS_INLINE_FUNCTION V is_action(V taken, int action) {
  using Real = scalar_of<V>;
  const V index = V(static_cast<Real>(action)), zero = V(Real(0));
  return select(taken < index, zero, select(index < taken, zero, V(Real(1))));
}

/// L. `q(a)` returns Q(s, a); `slope(a)` returns and `set_slope(a, v)` writes dL / dQ(s, a), in memory apart from Q.
template <class V, class Q, class Slope, class SetSlope>
KOKKOS_INLINE_FUNCTION V conservative_loss(int actions, const Q& q, V taken, const Slope& slope,
                                           const SetSlope& set_slope) {
  const auto scale = softmax<V>(actions, q, set_slope);
  const V share = V(scalar_of<V>(1)) / scale.sum;
  V below_largest = V(scalar_of<V>(0));  // exact where Q is large, unlike log-sum-exp minus Q
  for (int a = 0; a < actions; ++a) {
    const V own = is_action(taken, a);
    below_largest += own * (scale.largest - q(a));
    set_slope(a, slope(a) * share - own);
  }
  return logarithm(scale.sum) + below_largest;
}

}  // namespace vulpes::kernels
