// Sums in a fixed order.
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes {

/// Sum of f(i) for i in [0, n) on one thread: 16 partial sums that a host compiler keeps in vector lanes, then a tree.
/// The order depends on n only.
template <class Sum, class F>
KOKKOS_INLINE_FUNCTION Sum fixed_sum(std::int64_t n, const F& f) {
  constexpr int width = 16;
  Sum partial[width] = {};
  std::int64_t i = 0;
  for (; i + width <= n; i += width) {
    for (int l = 0; l < width; ++l) partial[l] += f(i + l);
  }
  for (int l = 0; i < n; ++i, ++l) partial[l] += f(i);
  for (int half = width / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) partial[l] += partial[l + half];
  }
  return partial[0];
}

/// The same by a team: on a host thread fixed_sum, on a device a team reduction. Every thread gets the sum.
template <class Sum, class Member, class F>
KOKKOS_INLINE_FUNCTION Sum team_sum([[maybe_unused]] const Member& team, std::int64_t n, const F& f) {
  KOKKOS_IF_ON_HOST((return fixed_sum<Sum>(n, f);))
  KOKKOS_IF_ON_DEVICE((Sum sum = 0; Kokkos::parallel_reduce(
                           Kokkos::TeamThreadRange(team, n), [&](std::int64_t i, Sum& s) { s += f(i); }, sum);
                       return sum;))
}

}  // namespace vulpes
