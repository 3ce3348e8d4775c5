#include "vulpes/core/instances_cuda.hpp"

#include <cuda_runtime.h>

#include <mutex>
#include <optional>
#include <string>

#include "vulpes/core/errors.hpp"

namespace vulpes {

void check_cuda(int code, const char* doing) {
  if (code == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(code);
  throw RunError(std::string("CUDA: ") + doing + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                 ")");
}

template <>
Kokkos::Cuda instance_of<Kokkos::Cuda>(Queue queue) {
  static std::mutex mutex;
  static std::optional<Kokkos::Cuda> instances[queues];
  const std::lock_guard lock(mutex);
  std::optional<Kokkos::Cuda>& instance = instances[static_cast<int>(queue)];
  if (!instance) {
    int lowest = 0, highest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "reading the streams' priorities");
    cudaStream_t stream = nullptr;
    // Does not order itself with the default stream, which libraries use while they are set up.
    check_cuda(
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, queue == Queue::background ? lowest : highest),
        "creating a stream");
    instance.emplace(stream, Kokkos::Impl::ManageStream::yes);
    Kokkos::push_finalize_hook([&instance] { instance.reset(); });
  }
  return *instance;
}

Event<Kokkos::Cuda>::Event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  event_.reset(event, [](cudaEvent_t e) { cudaEventDestroy(e); });
}

void Event<Kokkos::Cuda>::record(const Kokkos::Cuda& space) const {
  check_cuda(cudaEventRecord(event_.get(), space.cuda_stream()), "recording an event");
}

void Event<Kokkos::Cuda>::hold(const Kokkos::Cuda& space) const {
  check_cuda(cudaStreamWaitEvent(space.cuda_stream(), event_.get(), 0), "ordering two streams");
}

void Event<Kokkos::Cuda>::wait() const { check_cuda(cudaEventSynchronize(event_.get()), "waiting for an event"); }

}  // namespace vulpes
