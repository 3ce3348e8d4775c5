// Clipping by the global norm (Pascanu, Mikolov & Bengio 2013, algorithm 1).
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// Factor for every gradient so that the norm is at most `largest`; 1 below it. `norm` in double, since squares of
/// float gradients overflow float.
KOKKOS_INLINE_FUNCTION double clip_factor(double norm, double largest) { return norm > largest ? largest / norm : 1.0; }

}  // namespace vulpes::kernels
