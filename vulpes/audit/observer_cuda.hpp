// CUPTI: what Kokkos Tools cannot see of a CUDA device.
#pragma once

#include "vulpes/audit/observer.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include <memory>
#include <optional>
#include <string_view>

namespace vulpes::audit {

/// Kind of a function of CUDA's runtime or driver interface, by its name; nothing for what no row is about.
std::optional<CallKind> cuda_call_kind(std::string_view function);

/// Calls of the runtime and the driver, graphs as they become executable, and every kernel that runs. One at a time,
/// and with no other CUPTI tool: throws RunError.
template <>
class DeviceObserver<Kokkos::Cuda> {
 public:
  explicit DeviceObserver(Recorder& recorder);
  ~DeviceObserver();
  DeviceObserver(const DeviceObserver&) = delete;
  DeviceObserver& operator=(const DeviceObserver&) = delete;
  void stop();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace vulpes::audit
#endif
