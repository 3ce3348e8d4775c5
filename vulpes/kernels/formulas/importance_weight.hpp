// Importance weights (Schaul et al. 2016, section 3.4), normalised by the largest of the batch:
// w_i / max w = (N P(i))^-beta / (N P_min)^-beta = (p_min / p_i)^beta; N and the total cancel.
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// `smallest` and `own`: leaves in any common unit. 0 for a row without a leaf: it has no part in the loss.
KOKKOS_INLINE_FUNCTION double importance_weight(double smallest, double own, double beta) {
  return own > 0.0 ? Kokkos::pow(smallest / own, beta) : 0.0;
}

}  // namespace vulpes::kernels
