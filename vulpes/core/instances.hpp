// Instances with queues of their own, and the order of work between them.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes {

/// The queues of a process: a step's main line, the branch that runs beside it, and work that yields to both.
enum class Queue { main, side, background };
inline constexpr int queues = 3;

/// The instance that works off a queue, the same one each time: libraries keep a work space for each. A host space has
/// one queue, which is returned.
template <class Space>
Space instance_of(Queue) {
  return Space();
}

/// A point in an instance's queue.
///
/// Everything on a host space has happened when its launch returns, so there an event is nothing.
template <class Space>
class Event {
 public:
  /// Marks the end of what `space` holds now.
  void record(const Space&) const {}
  /// What `space` receives from now on begins after the mark. The device waits, the host does not. Before the first
  /// record: nothing to wait for.
  void hold(const Space&) const {}
  /// The host waits for the mark.
  void wait() const {}
};

/// What `second` receives from now on begins after all that `first` holds now.
template <class Space>
void order(const Space& first, const Space& second, const Event<Space>& event) {
  event.record(first);
  event.hold(second);
}

}  // namespace vulpes

#include "vulpes/core/instances_cuda.hpp"
