// Instances with streams of their own, and CUDA events.
#pragma once

#include "vulpes/core/instances.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include <memory>

namespace vulpes {

/// Throws RunError with CUDA's words for `code` (a cudaError_t) unless it is a success. `doing`: as in "recording an
/// event".
void check_cuda(int code, const char* doing);

template <>
Kokkos::Cuda instance_of<Kokkos::Cuda>(Queue queue);

template <>
class Event<Kokkos::Cuda> {
 public:
  Event();
  void record(const Kokkos::Cuda& space) const;
  void hold(const Kokkos::Cuda& space) const;
  void wait() const;

 private:
  std::shared_ptr<CUevent_st> event_;
};

}  // namespace vulpes
#endif
