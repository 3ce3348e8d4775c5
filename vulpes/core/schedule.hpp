// Schedules: pure functions of the iteration, evaluated on the device where they are used.
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes {

/// Piecewise-linear function of the iteration, constant before the first and after the last knot.
/// Trivially copyable, so that a kernel takes it by value and a captured graph needs no update.
struct Schedule {
  static constexpr int max_knots = 4;
  std::int64_t at[max_knots] = {};
  double value[max_knots] = {};
  int knots = 1;

  static constexpr Schedule constant(double v) {
    Schedule s;
    s.value[0] = v;
    return s;
  }
  /// From `from` at iteration `begin` to `to` `steps` later. With no steps it is `to` from `begin` on, `from` before.
  static constexpr Schedule linear(double from, double to, std::int64_t steps, std::int64_t begin = 0) {
    if (steps <= 0 && begin <= 0) return constant(to);
    if (steps <= 0) return linear(from, to, 1, begin - 1);
    Schedule s;
    s.at[0] = begin;
    s.value[0] = from;
    s.at[1] = begin + steps;
    s.value[1] = to;
    s.knots = 2;
    return s;
  }
  /// Ramp 0 -> peak over `ramp` steps, then linear to `last` at iteration `total`.
  static constexpr Schedule ramp_then_linear(double peak, double last, std::int64_t ramp, std::int64_t total) {
    Schedule s;
    s.knots = 0;
    if (ramp > 0) s.value[s.knots++] = peak / static_cast<double>(ramp);
    s.at[s.knots] = ramp > 0 ? ramp - 1 : 0;
    if (s.knots > 0 && s.at[s.knots] <= s.at[s.knots - 1]) s.knots = 0;
    s.value[s.knots++] = peak;
    if (total > s.at[s.knots - 1]) {
      s.at[s.knots] = total;
      s.value[s.knots++] = last;
    }
    return s;
  }

  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t iteration) const {
    if (iteration <= at[0]) return value[0];
    for (int k = 1; k < knots; ++k) {
      if (iteration < at[k]) {
        const double t = static_cast<double>(iteration - at[k - 1]) / static_cast<double>(at[k] - at[k - 1]);
        return value[k - 1] + t * (value[k] - value[k - 1]);
      }
    }
    return value[knots - 1];
  }
};

}  // namespace vulpes
