// One training step, top to bottom.
#pragma once

#include "vulpes/io/config.hpp"
#include "vulpes/trainer/learner.hpp"
#include "vulpes/trainer/step_buffers.hpp"

namespace vulpes::trainer {

/// Work that only some steps do; each combination is a variant of the step with launches of its own.
struct Periodic {
  bool prune = false;
  bool causal = false;
};

/// What a step needs to know besides buffers; fixed for a fold.
struct StepRules {
  RandomKey key;
  kernels::Support<float> support;
  kernels::GatherRules gather;
  kernels::OptimiserRules optimiser;
  kernels::PriorityRules priority;
  Schedule blend;
  bool double_dqn = true;
  bool per_branch = false;
  float cql = 0;
  kernels::Auxiliary<float> auxiliary;
  float diversity = 0;
  Schedule survival = Schedule::constant(1.0);
  float trunk_gradient_scale = 1;
  kernels::InjectedFault fault;
  kernels::PruningRules pruning;
  std::int64_t prune_every = 0;   ///< 0: off
  std::int64_t causal_every = 0;  ///< 0: off

  /// The variant of step number `step`.
  Periodic periodic(std::int64_t step) const;
};

/// `return_sd`: standard deviation of a bar's return in the training range, for the auxiliary loss' label.
StepRules make_step_rules(const io::Config& config, RandomKey key, double vmin, double vmax, double reward_scale,
                          double return_sd);

/// Where rows come from and priorities go to.
template <class Space>
struct Replay {
  kernels::ReplayRing<Space> ring;
  Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>> counts;
};

/// Samples a batch from the replay, learns from it, writes its priorities back.
template <class Space>
void training_step(const Space& space, const StepRules& rules, const Learner<Space>& learner,
                   const StepBuffers<Space>& buffers, const Replay<Space>& replay,
                   const kernels::MarketTable<Space>& table, Periodic periodic);

/// The part of a step between sampling and priorities: learns from the batch in `buffers`.
template <class Space>
void learn(const Space& space, const StepRules& rules, const Learner<Space>& learner, const StepBuffers<Space>& buffers,
           Periodic periodic);

}  // namespace vulpes::trainer
