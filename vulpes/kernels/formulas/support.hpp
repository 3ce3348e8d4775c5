// Support of the value distribution: Z atoms on [vmin, vmax] (Bellemare, Dabney & Munos 2017, section 4).
#pragma once

#include "vulpes/core/pack.hpp"

namespace vulpes::kernels {

/// z_k = vmin + k * spacing, k = 0 ... atoms - 1; spacing = (vmax - vmin) / (atoms - 1).
template <class Real>
struct Support {
  Real vmin = 0;
  Real spacing = 1;
  int atoms = 0;

  static Support make(double low, double high, int count) {
    return {static_cast<Real>(low), static_cast<Real>((high - low) / (count - 1)), count};
  }
  KOKKOS_INLINE_FUNCTION Real atom(int k) const { return multiply_add(spacing, static_cast<Real>(k), vmin); }
};

}  // namespace vulpes::kernels
