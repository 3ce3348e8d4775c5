// Kokkos before 4.7 calls three CUDA runtime functions with signatures that CUDA 13 dropped. These overloads give them
// back; scripts/deps forces this header into the build of Kokkos and, through the cuda preset, into ours.
#pragma once

#if defined(__cplusplus)
#include <cuda_runtime_api.h>

#if CUDART_VERSION >= 13000
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}
inline cudaMemLocation vulpes_location_of(int device) {
  cudaMemLocation location{};
  location.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device == cudaCpuDeviceId ? 0 : device;
  return location;
}
inline cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, int device) {
  return cudaMemAdvise(pointer, bytes, advice, vulpes_location_of(device));
}
inline cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device, cudaStream_t stream) {
  return cudaMemPrefetchAsync(pointer, bytes, vulpes_location_of(device), 0, stream);
}
#endif
#endif
