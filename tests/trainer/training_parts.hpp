// The parts of a small training on any space, as FoldTrainer puts them together, open to a test's eye.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "vulpes/agent/agent.hpp"
#include "vulpes/trainer/collection.hpp"
#include "vulpes/trainer/dataset.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::trainer::test {

template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
#define VULPES_AND_SPACE(S) , S
using EachSpace = SpaceList < void VULPES_FOR_EACH_SPACE(VULPES_AND_SPACE)
> ::Types;

inline io::Config small_config() {
  io::Config c;
  c.network = {24, 16, 1, 8, 11};
  c.train.batch = 32;
  c.train.steps = 1000;
  c.collect.envs = 20;  // not a multiple of a tile
  c.collect.window = 12;
  c.replay.rows = 2000;
  c.synthetic.train_bars = 800;
  c.synthetic.validation_bars = 200;
  c.synthetic.test_bars = 200;
  c.synthetic.test_paths = 2;
  c.synthetic.run_in = 256;
  c.features.return_horizons = {1, 2, 4, 8};
  c.features.volatility_windows = {16};
  c.features.mean_windows = {16, 32};
  c.features.volume_window = 16;
  c.optimiser.spectral_trunk = 3;
  c.optimiser.spectral_output = 4;
  c.agent.warmup_steps = 2;
  c.agent.blend_steps = 2;
  return c;
}

/// With every part of learning on; pruning and causal measurements every few steps.
inline io::Config everything() {
  io::Config c = small_config();
  c.network.survival = 0.8;
  c.cql.weight = c.diversity.weight = c.auxiliary.weight = 0.1;
  c.hindsight.share = 0.3;
  c.reward.goal_bonus = 0.5;
  c.pruning.sparsity = 0.5;
  c.pruning.every = 3;
  c.pruning.begin_fraction = 0;
  c.causal.every = 4;
  c.causal.rows = 16;
  return c;
}

template <class View>
auto to_host(const View& v) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), v);
}

template <class Space>
struct TrainingParts {
  Space space;
  Lanes<Space> lanes;
  io::Config config;
  Dataset data;
  RandomKey key{7, 1};
  market::Normaliser normaliser;
  std::vector<float> features;
  kernels::MarketTable<Space> table;
  std::vector<kernels::StartInterval> starts;
  std::optional<Learner<Space>> learner;
  StepBuffers<Space> buffers;
  Replay<Space> replay;
  kernels::CollectBuffers<Space> collect_buffers;
  kernels::CollectArguments<Space> arguments;
  StepRules rules;

  explicit TrainingParts(const Space& instance, const io::Config& c = small_config())
      : space(instance), lanes(instance), config(c), data(load_dataset(c)) {
    const Range train = data.folds[0].train;
    normaliser = market::Normaliser::fit(data.features, train.begin, train.end, c.features.clip, nullptr);
    features = normaliser.apply(data.features);
    table = kernels::MarketTable<Space>(space, data.account_bars, features, data.features.columns, data.bars.segment);
    const kernels::NetworkShape shape = agent::network_shape(c.network, data.features.columns);
    std::vector<float> parameters = agent::initial_parameters(kernels::Network(shape), key);
    const kernels::Network network(shape);
    for (const int t : network.output_weight) {  // far from ties, so that the greedy action is well defined
      for (std::size_t i = 0; i < network.layout[t].size(); ++i) parameters[network.layout[t].offset + i] *= 10.0f;
    }
    learner.emplace(space, shape, parameters, learner_options(c));
    buffers = StepBuffers<Space>(space, shape, step_parts(c, kernels::feature_groups(data.features, shape.state)), 8);
    replay.ring = kernels::ReplayRing<Space>(space, c.replay.rows, static_cast<int>(c.collect.envs),
                                             static_cast<int>(c.agent.n_step) + 1);
    replay.counts =
        allocate_zeroed<Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>>>(space, "vulpes::test::counts");
    collect_buffers = kernels::CollectBuffers<Space>(space, shape, static_cast<int>(c.collect.envs));
    rules = make_step_rules(c, key, -2, 2, 50, 0.01);

    starts = start_intervals(data, train, static_cast<std::size_t>(c.agent.n_step));
    arguments = make_collect_arguments(space, c, key, *learner, table, starts, train);
    arguments.support = rules.support;
    arguments.epsilon = Schedule::constant(1.0);
    kernels::begin_episodes(space, arguments, collect_buffers);
    kernels::refresh_new_priority(space, replay.ring);
    space.fence("vulpes::test::begin");
  }

  void collect_bar() {
    trainer::collect_bar(space, arguments, *learner, collect_buffers, replay.ring, rules.gather.n_step);
  }
  StepContext<Space> context() const { return {rules, *learner, buffers, replay, table}; }
  void step() { training_step(lanes, context(), rules.periodic(steps++)); }
  std::int64_t steps = 0;
};

}  // namespace vulpes::trainer::test
