// The account's own inputs to the network, the same in collection, replay and backtest.
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

inline constexpr int account_input_count = 5;

/// Writes exposure, unrealised return x 10, log(1 + bars held) / log(1 + window), drawdown x 10 and goal gap x 10 to
/// `out`. The factors bring what is worth a per cent or so near the scale of the normalised features.
KOKKOS_INLINE_FUNCTION void account_inputs(float exposure, float unrealised, int bars_held, float drawdown,
                                           float goal_gap, int window, float* out) {
  out[0] = exposure;
  out[1] = 10.0f * unrealised;
  out[2] = Kokkos::log1p(static_cast<float>(bars_held)) / Kokkos::log1p(static_cast<float>(window));
  out[3] = 10.0f * drawdown;
  out[4] = 10.0f * goal_gap;
}

}  // namespace vulpes::kernels
