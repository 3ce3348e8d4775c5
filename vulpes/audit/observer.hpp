// Listens to a training in this process, without making the host wait for anything.
#pragma once

#include <mutex>

#include "vulpes/audit/trace.hpp"
#include "vulpes/core/spaces.hpp"

namespace vulpes::audit {

/// Where observers put what they see; several threads do.
struct Recorder {
  std::mutex mutex;
  Trace trace;
  void add(Call call) {
    const std::lock_guard lock(mutex);
    trace.calls.push_back(std::move(call));
  }
};

/// What the calling thread is launching, as Kokkos Tools says it.
Origin origin_here();

/// What a device's own interface tells beyond Kokkos Tools. Host spaces have none.
template <class Space>
class DeviceObserver {
 public:
  explicit DeviceObserver(Recorder&) {}
  /// No more is heard; what is under way has been.
  void stop() {}
};

/// Kokkos Tools: labels, fences, copies, allocations; on a host the launches themselves.
class ToolsObserver {
 public:
  ToolsObserver(Recorder& recorder, bool device);
  ~ToolsObserver();
  ToolsObserver(const ToolsObserver&) = delete;
  ToolsObserver& operator=(const ToolsObserver&) = delete;

 private:
  Kokkos::Tools::Experimental::EventSet before_;
};

}  // namespace vulpes::audit

#include "vulpes/audit/observer_cuda.hpp"

namespace vulpes::audit {

/// Observes `Space` as long as it lives or until it is asked for what it saw. One at a time. The program must have been
/// started with ToolFences::no (core/runtime.hpp): a fence within a recording would end it.
template <class Space>
class Observer {
 public:
  Observer() : tools_(recorder_, !is_host_space<Space>), device_(recorder_) {
    recorder_.trace.device = !is_host_space<Space>;
  }
  /// How many calls were seen so far.
  std::size_t calls() {
    const std::lock_guard lock(recorder_.mutex);
    return recorder_.trace.calls.size();
  }
  /// Waits for the device. Call it once, outside of every window.
  Trace finish() {
    Kokkos::fence("vulpes::audit::finish");
    device_.stop();
    return std::move(recorder_.trace);
  }

 private:
  Recorder recorder_;
  ToolsObserver tools_;
  DeviceObserver<Space> device_;
};

}  // namespace vulpes::audit
