// n-step returns (Sutton 1988; Hessel et al. 2018, section 3): R = sum_{j<k} gamma^j r_j, bootstrap discount gamma^k.
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// Reward of one bar: scale * log growth - inventory_penalty * exposure^2, with the exposure held at its end.
struct RewardRules {
  float scale = 1, inventory_penalty = 0;
};

KOKKOS_INLINE_FUNCTION float bar_reward(const RewardRules& rules, float log_growth, float exposure) {
  return rules.scale * log_growth - rules.inventory_penalty * exposure * exposure;
}

/// Accumulates the return over the k <= n bars to the episode's end.
struct NStepReturn {
  float sum = 0, discount = 1;

  KOKKOS_INLINE_FUNCTION void add(float reward, float gamma) {
    sum += discount * reward;
    discount *= gamma;
  }
  /// A terminal has no value after it; a truncation keeps gamma^k.
  KOKKOS_INLINE_FUNCTION void end(bool terminal) {
    if (terminal) discount = 0;
  }
};

}  // namespace vulpes::kernels
