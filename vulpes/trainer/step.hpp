// One training step, top to bottom.
#pragma once

#include "vulpes/core/instances.hpp"
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

/// What a step works on. A recorded step keeps a copy: addresses and rules are those of the time of recording.
template <class Space>
struct StepContext {
  StepRules rules;
  Learner<Space> learner;
  StepBuffers<Space> buffers;
  Replay<Space> replay;
  kernels::MarketTable<Space> table;
};

/// The queues of a step: one branch of the forward passes runs beside the other.
template <class Space>
struct Lanes {
  Space main, side;
  Event<Space> forked = {}, joined = {};

  /// `space` and the side queue.
  explicit Lanes(const Space& space) : main(space), side(instance_of<Space>(Queue::side)) {}
  void fork() const { order(main, side, forked); }
  void join() const { order(side, main, joined); }
};

/// The parts of a step, in their order. Each is launches on one instance.
enum class Phase { sample, spectral, forward_ddqn, forward, aux, adam, priorities };
inline constexpr Phase phases[] = {Phase::sample, Phase::spectral, Phase::forward_ddqn, Phase::forward,
                                   Phase::aux,    Phase::adam,     Phase::priorities};
inline constexpr const char* phase_names[] = {"sample", "spectral", "forward_ddqn", "forward",
                                              "aux",    "adam",     "priorities"};

/// What an observer sees the launches of a step as (core/scope.hpp), in the order of the table of times.
inline constexpr const char* observed_parts[] = {"sample",   "spectral", "forward",  "forward_ddqn", "loss",
                                                 "backward", "causal",   "optimise", "priorities",   "metrics"};

/// Runs one part on `space`.
///
/// sample: draw and gather. spectral: spectral norm. forward_ddqn: target(s'). forward: online(s) and online(s'),
/// losses with the projection, diversity, backward. aux: causal measurement. adam: norm, clip, AdamW, mask, Polyak,
/// pruning. priorities: priorities, record, counters.
template <class Space>
void run_phase(const Space& space, Phase phase, const StepContext<Space>& context, Periodic periodic);

/// Samples a batch from the replay, learns from it, writes its priorities back.
template <class Space>
void training_step(const Lanes<Space>& lanes, const StepContext<Space>& context, Periodic periodic);

/// The part of a step between sampling and priorities: learns from the batch in the buffers.
template <class Space>
void learn(const Lanes<Space>& lanes, const StepContext<Space>& context, Periodic periodic);

}  // namespace vulpes::trainer
