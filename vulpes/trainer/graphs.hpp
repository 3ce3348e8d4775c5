// The training step as recorded graphs, where that works.
#pragma once

#include <array>

#include "vulpes/core/graph.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::trainer {

/// How a step is launched. mega: as one graph. split: a graph for each phase. eager: kernel by kernel.
enum class GraphMode { mega, split, eager };
/// Of configuration values that were checked.
GraphMode graph_mode(const std::string& name);

/// Recordings that are made to fail: the first `failures` of a fold, in `phase`.
struct GraphFaults {
  GraphPhase phase = GraphPhase::none;
  std::int64_t failures = 0;
  GraphPhase next() { return failures > 0 ? (--failures, phase) : GraphPhase::none; }
};

/// Launches training steps of one fold.
///
/// Steps 0 and 1 and the first step of each variant (Periodic) run eagerly: they bring up what kernels and libraries
/// set up at first use. The next one is recorded. Where a recording or its first launch fails, training goes on in the
/// next mode: mega, split, eager; the step that failed is run in that mode, nothing of it has run before. Each
/// fall-back is logged once. Results do not depend on the mode.
template <class Space>
class StepRunner {
 public:
  StepRunner(const Lanes<Space>& lanes, StepContext<Space> context, GraphMode mode, GraphFaults faults = {});

  void run(Periodic periodic);
  GraphMode mode() const { return mode_; }
  const StepContext<Space>& context() const { return context_; }

 private:
  struct Variant {
    bool warm = false;
    Graph<Space> whole;
    std::array<Graph<Space>, std::size(phases)> parts;
  };
  /// One phase, recorded if the mode says so. Falls back to eager by itself.
  void run_part(const Space& space, Phase phase, Variant& variant, Periodic periodic);
  void run_parts(Variant& variant, Periodic periodic);
  /// True where the step will be launched as all later ones of its variant.
  bool settled(const Variant& variant) const;
  void fall_back(GraphMode mode, const char* what, const GraphError& error);

  Lanes<Space> lanes_;
  StepContext<Space> context_;
  GraphMode mode_;
  GraphFaults faults_;
  std::int64_t steps_ = 0;
  Variant variants_[4];  ///< prune + 2 causal
};

}  // namespace vulpes::trainer
