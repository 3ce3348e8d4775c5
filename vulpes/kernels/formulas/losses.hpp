// Losses on the chosen action's distribution p of one branch and row, with target distribution m.
//
//   C51 (Bellemare, Dabney & Munos 2017):  - sum_z m_z log p_z        gradient on the logits: p_z - m_z   (sum m = 1)
//   MSE (warm-up):                         (Q - y)^2, y = sum_z z m_z  gradient: 2 (Q - y) p_z (z - Q)
//
// Both are blended by one weight: blend = 0 gives MSE, 1 gives C51. A loss on Q itself reaches the logits of its action
// through the expectation:                 dL / dlogit_z = dL/dQ p_z (z - Q)
#pragma once

#include "vulpes/kernels/formulas/support.hpp"

namespace vulpes::kernels {

/// d(MSE) / d logit_z.
template <class V>
KOKKOS_INLINE_FUNCTION V mse_gradient(V p, V atom, V q, V y) {
  return V(scalar_of<V>(2)) * (q - y) * p * (atom - q);
}

/// d(C51) / d logit_z.
template <class V>
KOKKOS_INLINE_FUNCTION V c51_gradient(V p, V m) {
  return p - m;
}

/// dQ / d logit_z.
template <class V>
KOKKOS_INLINE_FUNCTION V expectation_gradient(V p, V atom, V q) {
  return p * (atom - q);
}

}  // namespace vulpes::kernels
