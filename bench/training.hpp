// A training as the trainer builds it, on the synthetic market, with its parts open to measurement.
#pragma once

#include <memory>
#include <optional>

#include "harness.hpp"
#include "vulpes/agent/agent.hpp"
#include "vulpes/evaluator/backtest.hpp"
#include "vulpes/trainer/collection.hpp"
#include "vulpes/trainer/dataset.hpp"
#include "vulpes/trainer/graphs.hpp"

namespace vulpes::bench {

/// Reference configurations (docs/kernels.md): batch, state, trunk, blocks, head width.
struct Reference {
  const char* name;
  int batch, state, hidden1, hidden2, blocks, head_hidden;
  bool spectral = false;
  bool everything = false;  ///< all parts of learning that are in every step
  std::int64_t replay_rows = 131072;
  int envs = 128;
};
inline constexpr Reference demo{"demo", 256, 0, 128, 64, 1, 64};
inline constexpr Reference demo_everything{"demo_everything", 256, 0, 128, 64, 1, 64, true, true};
inline constexpr Reference demo_spectral{"demo_spectral", 256, 0, 128, 64, 1, 64, true};
inline constexpr Reference small_reference{"small", 1024, 64, 256, 128, 1, 128};
inline constexpr Reference small_everything{"small_everything", 1024, 64, 256, 128, 1, 128, true, true, 1 << 20, 1024};
inline constexpr Reference large_everything{
    "large_everything", 8192, 64, 2048, 1024, 1, 512, true, true, 1 << 20, 1024};

template <class Space>
struct Training {
  io::Config config;
  trainer::Dataset data;
  Space space = instance_of<Space>(Queue::main);
  trainer::Lanes<Space> lanes{space};
  kernels::NetworkShape shape;
  kernels::MarketTable<Space> table;
  std::optional<trainer::Learner<Space>> learner;
  trainer::StepBuffers<Space> buffers;
  trainer::Replay<Space> replay;
  kernels::CollectBuffers<Space> collect_buffers;
  kernels::CollectArguments<Space> collect_arguments;
  trainer::StepRules rules;
  std::optional<trainer::StepContext<Space>> context;
  std::unique_ptr<trainer::StepRunner<Space>> runner;
  kernels::WorkSizes sizes;

  /// A replay filled by random play; the iteration is past warm-up and blending.
  explicit Training(const Reference& r) {
    const int envs = r.envs;
    const std::int64_t replay_rows = r.replay_rows;
    config.network.hidden1 = r.hidden1;
    config.network.hidden2 = r.hidden2;
    config.network.residual_blocks = r.blocks;
    config.network.head_hidden = r.head_hidden;
    config.train.batch = r.batch;
    config.replay.rows = replay_rows;
    config.collect.envs = envs;
    config.optimiser.spectral_trunk = config.optimiser.spectral_output = r.spectral ? 2.0 : 0.0;
    if (r.everything) {
      config.network.survival = 0.9;
      config.agent.scale_trunk_gradient = true;
      config.cql.weight = config.diversity.weight = config.auxiliary.weight = 0.01;
      config.hindsight.share = 0.5;
      config.reward.goal_bonus = 0.5;
      config.pruning.sparsity = 0.5;
      config.guard.spike_factor = 10;
    }
    config.synthetic.train_bars = 32768;
    config.synthetic.validation_bars = 16384;
    config.synthetic.test_bars = 64;
    config.synthetic.test_paths = 1;
    data = trainer::load_dataset(config);
    const auto& fold = data.folds.front();
    const int columns = data.features.columns;
    const auto normaliser =
        market::Normaliser::fit(data.features, fold.train.begin, fold.train.end, config.features.clip, nullptr);
    table = kernels::MarketTable<Space>(space, data.account_bars, normaliser.apply(data.features), columns,
                                        data.bars.segment);
    shape = agent::network_shape(config.network, columns);
    if (r.state > 0) shape.state = r.state;
    const RandomKey key{1, 1};
    learner.emplace(space, shape, agent::initial_parameters(kernels::Network(shape), key),
                    trainer::learner_options(config));
    buffers = trainer::StepBuffers<Space>(
        space, shape, trainer::step_parts(config, kernels::feature_groups(data.features, shape.state)), 1000);
    replay.ring = kernels::ReplayRing<Space>(space, replay_rows, envs, 2);
    replay.counts =
        allocate_zeroed<Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>>>(space, "vulpes::bench::counts");
    collect_buffers = kernels::CollectBuffers<Space>(space, shape, envs);
    rules = trainer::make_step_rules(config, key, -3.0, 5.0, 50.0, 0.0085);

    collect_arguments = trainer::make_collect_arguments(space, config, key, *learner, table,
                                                        trainer::start_intervals(data, fold.train, 1), fold.train);
    collect_arguments.support = rules.support;
    collect_arguments.epsilon = Schedule::constant(1.0);

    sizes.shape = shape;
    sizes.feature_columns = columns;
    sizes.tree_levels = replay.ring.tree.view.levels;
    sizes.replay_rows = replay.ring.capacity();
    sizes.spectral_trunk = sizes.spectral_output = r.spectral;

    context = {rules, *learner, buffers, replay, table};
    runner = std::make_unique<trainer::StepRunner<Space>>(lanes, *context, trainer::GraphMode::mega);
    kernels::begin_episodes(space, collect_arguments, collect_buffers);
    kernels::refresh_new_priority(space, replay.ring);
    const int bars =
        static_cast<int>(std::min<std::int64_t>(replay_rows > 131072 ? replay_rows : 1 << 15, replay_rows) / envs);
    for (int i = 0; i < bars; ++i) collect_bar();
    const auto state = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), learner->state);
    state().now.iteration = static_cast<std::uint64_t>(config.agent.warmup_steps + config.agent.blend_steps);
    Kokkos::deep_copy(space, learner->state, state);
    space.fence("vulpes::bench::training");
  }

  void collect_bar() const {
    trainer::collect_bar(space, collect_arguments, *learner, collect_buffers, replay.ring, rules.gather.n_step);
  }
  /// As in training: recorded on a device.
  void step() const { runner->run({}); }
  /// Launch by launch.
  void eager_step() const { trainer::training_step(lanes, *context, {}); }
};

template <class Space>
const Training<Space>& training(const Reference& r) {
  return kept<Training<Space>>(r.name, [&] { return std::make_unique<Training<Space>>(r); });
}

}  // namespace vulpes::bench
