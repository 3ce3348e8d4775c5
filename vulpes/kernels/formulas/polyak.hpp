// Averaged target parameters (Polyak & Juditsky 1992; Lillicrap et al. 2016): target <- target + tau (online - target).
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

template <class Real>
KOKKOS_INLINE_FUNCTION Real polyak(Real target, Real online, Real tau) {
  return target + tau * (online - target);
}

}  // namespace vulpes::kernels
