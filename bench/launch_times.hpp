// Time of every launch, through Kokkos Tools: on host spaces a launch returns when it is done; on a device Kokkos
// fences at both ends of a launch while a tool listens.
#pragma once

#include <string>
#include <vector>

namespace vulpes::bench {

struct TimedLaunch {
  std::string label;
  double seconds;
};

/// Listens while it exists; only one at a time. A region whose name begins with "vulpes::" counts as one launch, with
/// all that runs inside (matrix products of a library).
class LaunchTimes {
 public:
  LaunchTimes();
  ~LaunchTimes();
  LaunchTimes(const LaunchTimes&) = delete;
  LaunchTimes& operator=(const LaunchTimes&) = delete;
  /// The launches so far, in order; forgets them.
  std::vector<TimedLaunch> take();
};

}  // namespace vulpes::bench
