// One training step, top to bottom.
#pragma once

#include "vulpes/io/config.hpp"
#include "vulpes/trainer/learner.hpp"
#include "vulpes/trainer/step_buffers.hpp"

namespace vulpes::trainer {

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
};

StepRules make_step_rules(const io::Config& config, RandomKey key, double vmin, double vmax, double reward_scale);

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
                   const kernels::MarketTable<Space>& table);

/// The part of a step between sampling and priorities: learns from the batch in `buffers`.
template <class Space>
void learn(const Space& space, const StepRules& rules, const Learner<Space>& learner,
           const StepBuffers<Space>& buffers);

}  // namespace vulpes::trainer
