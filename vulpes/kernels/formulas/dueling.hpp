// Dueling aggregation, branch by branch and atom by atom (Wang et al. 2016, equation 9; Tavakoli, Pardo & Kormushev
// 2018, "Action branching architectures", equation 1):
//
//   logits_d[a, z] = V[z] + A_d[a, z] - mean_a A_d[a, z]
//
// Inputs are columns of a transposed logit buffer [logit, row]; `stride` is the distance between logits.
#pragma once

#include "vulpes/core/pack.hpp"

namespace vulpes::kernels {

/// V[z] - mean_a A[a, z] of one atom: what every action's own advantage is added to.
/// `advantage` points at A[0, z] of the row; action a is at advantage[a * action_stride]. A + 1 additions.
template <class V>
KOKKOS_INLINE_FUNCTION V dueling_base(V value, const scalar_of<V>* advantage, std::int64_t action_stride,
                                      const scalar_of<V>* bias, int bias_stride, int actions) {
  V sum = V(scalar_of<V>(0));
  for (int a = 0; a < actions; ++a) sum += load<V>(advantage + a * action_stride) + V(bias[a * bias_stride]);
  return value - sum * V(scalar_of<V>(1) / static_cast<scalar_of<V>>(actions));
}

/// The same plus the advantage of action `chosen` (one per row): the chosen action's logit.
template <class V>
KOKKOS_INLINE_FUNCTION V dueling_chosen(V value, const scalar_of<V>* advantage, std::int64_t action_stride,
                                        const scalar_of<V>* bias, int bias_stride, int actions, V chosen) {
  V sum = V(scalar_of<V>(0)), own = V(scalar_of<V>(0));
  for (int a = 0; a < actions; ++a) {
    const V x = load<V>(advantage + a * action_stride) + V(bias[a * bias_stride]);
    sum += x;
    const V index = V(static_cast<scalar_of<V>>(a));
    own = select(chosen < index, own, select(index < chosen, own, x));
  }
  return value + own - sum * V(scalar_of<V>(1) / static_cast<scalar_of<V>>(actions));
}

}  // namespace vulpes::kernels
