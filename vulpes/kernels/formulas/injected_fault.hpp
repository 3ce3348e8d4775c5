// Faults that a configuration injects into chosen steps, to see what the guard makes of them, and the rule by which a
// fault in a loss reaches the guard, which looks at the gradient's norm. Our own.
//
//   L <- L + nan(iteration)          dL <- dL spike(iteration) (1 + (L - L)), which is NaN where L is NaN or infinite
#pragma once

#include <cstdint>

#include "vulpes/core/pack.hpp"

namespace vulpes::kernels {

/// Steps [first, end) of each fault; empty by default.
struct InjectedFault {
  std::int64_t nan_first = 0, nan_end = 0;      ///< every row's loss becomes NaN
  std::int64_t spike_first = 0, spike_end = 0;  ///< the gradient on the logits is multiplied by `factor`
  double factor = 1;

  KOKKOS_INLINE_FUNCTION bool nan(std::int64_t iteration) const {
    return iteration >= nan_first && iteration < nan_end;
  }
  KOKKOS_INLINE_FUNCTION double spike(std::int64_t iteration) const {
    return iteration >= spike_first && iteration < spike_end ? factor : 1.0;
  }
};

/// 1 where `loss` is finite, else NaN.
template <class V>
KOKKOS_INLINE_FUNCTION V one_if_finite(V loss) {
  return V(scalar_of<V>(1)) + (loss - loss);
}

}  // namespace vulpes::kernels
