// Steps launched as one graph, as a graph for each phase, and kernel by kernel give the same bits, whatever fails.
#include <gtest/gtest.h>

#include <vector>

#include "training_parts.hpp"
#include "vulpes/trainer/graphs.hpp"
#include "vulpes/trainer/validator.hpp"

namespace vulpes::trainer {
namespace {

constexpr int steps = 14;

/// All that a run of steps leaves behind.
struct Outcome {
  std::vector<float> parameters, target, moments, sigma;
  std::vector<std::uint32_t> leaves, mask;
  std::vector<double> deltas;
  GraphMode mode;

  bool operator==(const Outcome& o) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(parameters, o.parameters) && same(target, o.target) && same(moments, o.moments) &&
           same(sigma, o.sigma) && same(leaves, o.leaves) && same(mask, o.mask) && same(deltas, o.deltas);
  }
};

template <class View>
auto all_of(const View& v) {
  const auto host = test::to_host(v);
  return std::vector<typename View::non_const_value_type>(host.data(), host.data() + host.span());
}

template <class Space>
Outcome outcome(const io::Config& config, GraphMode mode, GraphFaults faults = {}) {
  test::TrainingParts<Space> parts(instance_of<Space>(Queue::main), config);
  for (int i = 0; i < 30; ++i) parts.collect_bar();
  StepRunner<Space> runner(parts.lanes, parts.context(), mode, faults);
  for (std::int64_t i = 0; i < steps; ++i) {
    if (i % 5 == 4) parts.collect_bar();
    runner.run(parts.rules.periodic(i));
  }
  Kokkos::fence("vulpes::test::steps");
  const auto& b = parts.learner->buffers;
  EXPECT_EQ(test::to_host(parts.learner->state)().now.adam_t, static_cast<std::uint64_t>(steps));
  return {all_of(b.parameters),
          all_of(b.target),
          all_of(b.second_moment),
          all_of(parts.learner->spectral.sigma),
          all_of(parts.replay.ring.tree.leaves),
          all_of(b.mask),
          all_of(parts.buffers.causal.records),
          runner.mode()};
}

template <class Space>
struct Graphs : testing::Test {};
TYPED_TEST_SUITE(Graphs, test::EachSpace);

TYPED_TEST(Graphs, EveryModeGivesTheSameBits) {
  for (const io::Config& config : {test::small_config(), test::everything()}) {
    const Outcome eager = outcome<TypeParam>(config, GraphMode::eager);
    const Outcome mega = outcome<TypeParam>(config, GraphMode::mega),
                  split = outcome<TypeParam>(config, GraphMode::split);
    EXPECT_TRUE(mega == eager);
    EXPECT_TRUE(split == eager);
    EXPECT_EQ(mega.mode, GraphMode::mega);
    EXPECT_EQ(split.mode, GraphMode::split);
  }
}

TYPED_TEST(Graphs, AFailureInAnyPhaseFallsBackAndChangesNothing) {
  const io::Config config = test::everything();
  const Outcome eager = outcome<TypeParam>(config, GraphMode::eager);
  for (const GraphPhase phase : {GraphPhase::begin, GraphPhase::body, GraphPhase::end, GraphPhase::instantiate,
                                 GraphPhase::upload, GraphPhase::launch}) {
    const Outcome once = outcome<TypeParam>(config, GraphMode::mega, {phase, 1});
    EXPECT_EQ(once.mode, GraphMode::split) << static_cast<int>(phase);
    EXPECT_TRUE(once == eager) << static_cast<int>(phase);
    // The fourth recording of the split step: half of it has run as graphs.
    for (const std::int64_t failures : {2, 4, 1000}) {
      const Outcome twice = outcome<TypeParam>(config, GraphMode::mega, {phase, failures});
      EXPECT_EQ(twice.mode, GraphMode::eager) << static_cast<int>(phase);
      EXPECT_TRUE(twice == eager) << static_cast<int>(phase);
    }
  }
}

TYPED_TEST(Graphs, ValidationScoresTheSnapshotWhileTrainingGoesOn) {
  test::TrainingParts<TypeParam> parts(instance_of<TypeParam>(Queue::main));
  for (int i = 0; i < 30; ++i) parts.collect_bar();
  const auto walks = walks_of(parts.data, parts.data.folds[0].validation, 32);
  const auto& parameters = parts.learner->buffers.parameters;
  const evaluator::Actor<TypeParam> actor{parts.learner->network, parts.rules.support, parameters,
                                          parts.arguments.goal};
  const auto direct = [&] {
    return evaluator::mean_growth(
        evaluator::backtest(parts.space, actor, parts.table, parts.arguments.rules, 12, walks));
  };
  std::vector<double> expected;
  std::vector<std::vector<float>> snapshots;
  Validator<TypeParam> validator(actor, parts.table, parts.arguments.rules, 12, walks);
  for (int i = 0; i < 5; ++i) {
    Kokkos::fence("vulpes::test::snapshot");
    expected.push_back(direct());
    snapshots.push_back(all_of(parameters));
    validator.submit(parts.space, parameters);
    for (int k = 0; k < 3; ++k) parts.step();  // changes the parameters under the validation's hands
    if (i == 0) continue;
    const Validation v = validator.collect();
    EXPECT_EQ(v.score, expected[i - 1]);
    EXPECT_EQ(v.parameters, snapshots[i - 1]);
  }
  EXPECT_EQ(validator.collect().score, expected[4]);
  EXPECT_NE(expected[0], expected[4]);
}

}  // namespace
}  // namespace vulpes::trainer
