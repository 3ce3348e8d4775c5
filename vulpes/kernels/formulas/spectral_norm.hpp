// Spectral normalisation by power iteration (Miyato et al. 2018, algorithm 1), as a bound: W <- W min(1, c / sigma).
//
//   t = W' u / ||u||,  sigma = ||t||,  v = t / sigma,  u <- W v (normalised when next used)
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// Factor that brings a matrix of spectral norm `sigma` to at most `bound`; 1 for a zero matrix.
template <class Real>
KOKKOS_INLINE_FUNCTION Real spectral_scale(Real sigma, Real bound) {
  return sigma > bound ? bound / sigma : Real(1);
}

}  // namespace vulpes::kernels
