// What the CUDA back end means for packs.
#pragma once

#include "vulpes/core/compat.hpp"

namespace vulpes {

/// Whether kernels of host spaces work on packs (core/pack.hpp). nvcc compiles every kernel for the device too, where
/// there are no vector types: a program with the CUDA back end works row by row on its host spaces, with the same
/// results.
#if defined(KOKKOS_ENABLE_CUDA)
inline constexpr bool kernels_use_packs = false;
#else
inline constexpr bool kernels_use_packs = true;
#endif

}  // namespace vulpes
