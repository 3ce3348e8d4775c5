// A kernel that keeps a device busy until the host lets it go: whoever waits for the device meanwhile waits in vain.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "vulpes/core/spaces.hpp"

namespace vulpes::audit {

/// Spins on a device until `flags[0]` is set, or for about a minute: a device must not hang for good.
struct Spin {
  volatile int* flags;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    constexpr std::int64_t most = 50'000'000;  // reads of host memory, of more than a microsecond each
    for (std::int64_t i = 0; i < most && flags[0] == 0; ++i) {
    }
  }
};

/// Holds the queue of one instance of a device. Not for host spaces, whose launches return when they are done.
template <class Space>
class Gate {
 public:
  explicit Gate(const Space& space) : space_(space), flags_("vulpes::audit::gate") {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// What `space` receives from now on waits for `open`, at most `patience`.
  void close(std::chrono::seconds patience = std::chrono::seconds(20));
  /// Lets the device go on. True unless the time had run out before.
  bool open();
  bool closed() const { return thread_.joinable(); }

 private:
  Space space_;
  Kokkos::View<int[1], Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace> flags_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool opened_ = false, late_ = false;
  std::thread thread_;  ///< lets go when the host is held up
};

}  // namespace vulpes::audit
