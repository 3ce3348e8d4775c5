// Sequences of launches that are recorded once and replayed as one launch.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/spaces.hpp"

namespace vulpes {

/// Where a recording can fail; tests make it fail there.
enum class GraphPhase { none, begin, body, end, instantiate, upload, launch };
/// "begin", "body" and so on; throws InputError for another name than those and "none".
GraphPhase graph_phase(const std::string& name);

/// A recording, or the first launch of it, did not work. Nothing of it ran.
class GraphError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A recorded body. It holds the addresses and arguments of the time of recording: what varies from launch to launch
/// must come from device memory, and the buffers must outlive it.
///
/// CUDA: an instantiated graph of what the body launched on `space` and on instances that were ordered after it and
/// before its end again (core/instances.hpp). A host space replays the body itself, which must own its arguments.
template <class Space>
class Graph {
 public:
  Graph() = default;
  /// Runs `body` once, with nothing executed on CUDA. `fail_at`: pretend a failure of that phase. Throws GraphError;
  /// what `body` throws is reported by one. Throws RunError when the device itself is broken.
  Graph(const Space& space, std::function<void()> body, GraphPhase fail_at = GraphPhase::none);
  explicit operator bool() const { return implementation_ != nullptr; }
  /// Throws GraphError.
  void launch(const Space& space) const;

 private:
  struct Implementation;
  std::shared_ptr<const Implementation> implementation_;
};

/// A piece of work on one instance: eager the first time (kernels and libraries set themselves up at first use),
/// recorded the second, replayed from then on; eager for good where that fails, which `report` hears of once.
template <class Space>
class Replayed {
 public:
  /// `record` false: always eager.
  explicit Replayed(bool record = true, std::function<void(const std::string&)> report = nullptr)
      : record_(record), report_(std::move(report)) {}

  /// `make` returns the body as Graph asks for it, the same one each time; it is not called for a replay.
  template <class Make>
  void run(const Space& space, const Make& make) {
    if (record_ && warm_) {
      try {
        if (!graph_) graph_ = Graph<Space>(space, make());
        graph_.launch(space);
        return;
      } catch (const GraphError& e) {
        record_ = false;
        if (report_) report_(e.what());
      }
    }
    make()();
    warm_ = true;
  }

 private:
  bool record_, warm_ = false;
  std::function<void(const std::string&)> report_;
  Graph<Space> graph_;
};

}  // namespace vulpes
