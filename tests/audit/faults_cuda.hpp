#pragma once

#include "vulpes/core/spaces.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_runtime.h>

namespace vulpes::audit::test {

template <>
inline void poll(const Kokkos::Cuda& space) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, space.cuda_stream());
  cudaEventQuery(event);
  cudaEventDestroy(event);
}

}  // namespace vulpes::audit::test
#endif
