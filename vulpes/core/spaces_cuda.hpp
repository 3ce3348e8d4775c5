// The CUDA back end's entry in the list of execution spaces.
#pragma once

#include "vulpes/core/compat.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#define VULPES_FOR_CUDA_SPACE(M) M(Kokkos::Cuda)
#else
#define VULPES_FOR_CUDA_SPACE(M)
#endif
