// Priorities (Schaul et al. 2016, "Prioritized experience replay"): p = (delta + epsilon)^alpha, in fixed point.
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// Fixed point of the segment tree's leaves: units of 2^-20.
inline constexpr double priority_one = 1048576.0;
inline constexpr std::uint32_t largest_priority = 0xffffffffu;

/// p = (delta + epsilon)^alpha in units, at least 1; the largest where it overflows, and `saturated` is set. delta >=
/// 0.
KOKKOS_INLINE_FUNCTION std::uint32_t priority_units(double priority, bool& saturated) {
  const double units = priority * priority_one;
  saturated = units >= 4294967295.0;
  if (saturated) return largest_priority;
  return units < 1.0 ? 1u : static_cast<std::uint32_t>(units);
}

KOKKOS_INLINE_FUNCTION double raw_priority(double delta, double epsilon, double alpha) {
  return Kokkos::pow(delta + epsilon, alpha);
}

}  // namespace vulpes::kernels
