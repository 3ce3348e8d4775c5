#include "vulpes/kernels/sample.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "replay_fixture.hpp"
#include "vulpes/kernels/formulas/account_state.hpp"
#include "vulpes/kernels/formulas/importance_weight.hpp"

namespace vulpes::kernels::test {
namespace {

constexpr std::uint32_t one = 1u << 20;

/// A ring of one account, n = 1, whose every slot is written once and whose leaves are then set.
template <class Space>
ReplayRing<Space> ring_with(const Space& space, const std::vector<std::uint32_t>& leaves) {
  const ReplayRing<Space> ring(space, static_cast<std::int64_t>(leaves.size()), 1, 1);
  write(space, ring.cursor, 0, {leaves.size(), leaves.size()});
  set_leaves(space, ring.tree, leaves);
  return ring;
}

template <class Space>
struct SampleTest : testing::Test {
  Space space;
  MarketTable<Space> table = counting_table(space, 64);
  GatherRules rules() const {
    GatherRules r;
    r.window = 8;
    r.beta = Schedule::constant(1.0);
    return r;
  }
};
TYPED_TEST_SUITE(SampleTest, EachSpace);

TYPED_TEST(SampleTest, ZeroLeavesAreNeverDrawnInAMillionDrawsAndAllWeightsAreFinite) {
  std::vector<std::uint32_t> leaves(1000);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    leaves[i] = i % 3 == 0 ? 0u : (i % 7 == 1 ? 1u : one * static_cast<std::uint32_t>(i % 5));
  const auto ring = ring_with(this->space, leaves);
  SampleProblem<TypeParam> p(10000, 8);
  for (int i = 0; i < 100; ++i) {
    p.set_iteration(i);
    p.sample(ring);
    p.collect_batch(ring, this->table, this->rules());
    for (std::uint32_t row : to_host(this->space, p.draws.rows))
      ASSERT_TRUE(row < leaves.size() && leaves[row] > 0) << row;
    for (float w : to_host(this->space, p.weights)) ASSERT_TRUE(std::isfinite(w) && w > 0 && w <= 1) << w;
  }
}

TYPED_TEST(SampleTest, RowsAreDrawnInProportionAndOnceAStratum) {
  const auto ring = ring_with(this->space, {3 * one, 2 * one, 5 * one, 0, 4 * one});
  SampleProblem<TypeParam> p(14, 8);
  std::map<std::uint32_t, int> counts;
  for (int i = 0; i < 1000; ++i) {
    p.set_iteration(i);
    p.sample(ring);
    const auto rows = to_host(this->space, p.draws.rows);
    // Strata are whole leaves' units here, so every batch has each row exactly as often as its priority.
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    for (std::uint32_t row : rows) ++counts[row];
  }
  EXPECT_EQ(counts, (std::map<std::uint32_t, int>{{0, 3000}, {1, 2000}, {2, 5000}, {4, 4000}}));

  SampleProblem<TypeParam> single(1, 8);  // one stratum: the random word alone decides
  counts.clear();
  constexpr int n = 20000;
  for (int i = 0; i < n; ++i) {
    single.set_iteration(i);
    single.sample(ring);
    ++counts[to_host(this->space, single.draws.rows)[0]];
  }
  for (const auto& [row, share] :
       std::map<std::uint32_t, double>{{0, 3 / 14.}, {1, 2 / 14.}, {2, 5 / 14.}, {4, 4 / 14.}}) {
    EXPECT_NEAR(counts[row], n * share, 4 * std::sqrt(n * share * (1 - share))) << row;
  }
}

TEST(Sample, TheSameCountersGiveTheSameRowsOnEveryBackEnd) {
  std::vector<std::uint32_t> leaves(3000);
  for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i] = static_cast<std::uint32_t>(i * 2654435761u >> 8);
  std::vector<std::vector<std::uint32_t>> rows;
#define VULPES_DRAW(S)                                               \
  {                                                                  \
    const S space;                                                   \
    const auto ring = ring_with(space, leaves);                      \
    SampleProblem<S> p(257, 8);                                      \
    const auto drawn = [&](std::uint64_t iteration, RandomKey key) { \
      p.set_iteration(iteration);                                    \
      p.sample(ring, key);                                           \
      return to_host(space, p.draws.rows);                           \
    };                                                               \
    rows.push_back(drawn(5, {1, 0}));                                \
    EXPECT_EQ(rows.back(), rows.front());                            \
    EXPECT_NE(drawn(6, {1, 0}), rows.front());                       \
    EXPECT_NE(drawn(5, {2, 0}), rows.front());                       \
    EXPECT_NE(drawn(5, {1, 1}), rows.front());                       \
    EXPECT_EQ(drawn(5, {1, 0}), rows.front());                       \
  }
  VULPES_FOR_EACH_SPACE(VULPES_DRAW)
#undef VULPES_DRAW
}

TEST(ImportanceWeight, IsTheSmallestPriorityOverTheOwn) {
  const std::vector<double> expected = {1, .5, 1 / 3., .25};
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(importance_weight(1, i + 1, 1), expected[i]);
  EXPECT_DOUBLE_EQ(importance_weight(1, 4, .5), .5);
  EXPECT_DOUBLE_EQ(importance_weight(1, 4, 0), 1);
  EXPECT_EQ(importance_weight(0, 0, 1), 0);
}

TYPED_TEST(SampleTest, WeightsAreNormalisedOverTheDrawnBatch) {
  const auto ring = ring_with(this->space, {1 * one, 2 * one, 3 * one, 4 * one});
  SampleProblem<TypeParam> p(4, 8);
  p.choose(ring, {0, 1, 2, 3});
  p.collect_batch(ring, this->table, this->rules());
  EXPECT_EQ(to_host(this->space, p.weights), (std::vector<float>{1.0f, .5f, 1 / 3.f, .25f}));

  SampleProblem<TypeParam> pair(2, 8);
  pair.choose(ring, {2, 3});
  pair.collect_batch(ring, this->table, this->rules());
  EXPECT_EQ(to_host(this->space, pair.weights), (std::vector<float>{1.0f, .75f}));
}

TYPED_TEST(SampleTest, TheBatchMinimumBelongsToItsOwnBatch) {
  const auto ring = ring_with(this->space, std::vector<std::uint32_t>(50, one));
  SampleProblem<TypeParam> p(16, 8);
  for (std::uint64_t i = 10; i < 60; ++i) {
    p.set_iteration(i);
    p.sample(ring);
    const auto leaves = to_host(this->space, p.draws.leaves);
    const std::uint32_t least = *std::min_element(leaves.begin(), leaves.end());
    EXPECT_EQ(to_host(this->space, p.draws.smallest)[i & 1], least);
    p.collect_batch(ring, this->table, this->rules());
    const auto weights = to_host(this->space, p.weights);
    EXPECT_EQ(*std::max_element(weights.begin(), weights.end()), 1.0f);
    std::vector<float> deltas(16);
    for (int k = 0; k < 16; ++k) deltas[k] = static_cast<float>((i * 16 + k) % 11) + (i % 2 ? 0.0f : 50.0f);
    p.prioritise(ring, {1.0, 0.01}, deltas);
  }
}

TYPED_TEST(SampleTest, NewRowsGetTheLargestPriorityInTheBuffer) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 1);
  refresh_new_priority(this->space, ring);
  add_slot(this->space, ring, 1, {ReplayRow{}});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[0], one);  // empty before: 1
  SampleProblem<TypeParam> p(1, 8);
  p.choose(ring, {0});
  p.prioritise(ring, {0.5, 0.0}, {4.0f});
  refresh_new_priority(this->space, ring);
  add_slot(this->space, ring, 1, {ReplayRow{}});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[1], 2 * one);  // 4 to the power of alpha, once
  p.prioritise(ring, {0.5, 0.0}, {0.25f});
  p.choose(ring, {1});
  p.prioritise(ring, {0.5, 0.0}, {0.0625f});
  refresh_new_priority(this->space, ring);
  add_slot(this->space, ring, 1, {ReplayRow{}});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[2], one / 2);  // the largest present one, not the largest ever
}

TYPED_TEST(SampleTest, NaNAndNegativeDeltasAreRejectedAndCounted) {
  const auto ring = ring_with(this->space, std::vector<std::uint32_t>(6, 3 * one));
  SampleProblem<TypeParam> p(4, 8);
  p.choose(ring, {1, 2, 3, 4});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  p.prioritise(ring, {0.5, 1e-3}, {nan, -nan, -1.0f, nan});
  const TreeCopy tree(this->space, ring.tree);
  EXPECT_EQ(tree.total(), 18u * one);
  EXPECT_EQ(tree.fault(), "");
  EXPECT_EQ(p.count().rejected, 4u);
  EXPECT_EQ(p.count().dropped + p.count().saturated, 0u);
}

TYPED_TEST(SampleTest, SmallPrioritiesAreOneUnitAndLargeOnesSaturateAndAreCounted) {
  const auto ring = ring_with(this->space, std::vector<std::uint32_t>(4, one));
  SampleProblem<TypeParam> p(4, 8);
  p.choose(ring, {0, 1, 2, 3});
  p.prioritise(ring, {1.0, 0.0}, {1e-9f, 5000.0f, std::numeric_limits<float>::infinity(), 2.0f});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[0], 1u);
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[1], 0xffffffffu);
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[2], 0xffffffffu);
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[3], 2 * one);
  EXPECT_EQ(p.count().saturated, 2u);
  EXPECT_EQ(TreeCopy(this->space, ring.tree).fault(), "");
}

TYPED_TEST(SampleTest, ThePriorityOfAnOverwrittenRowIsDropped) {
  const ReplayRing<TypeParam> ring(this->space, 4, 1, 1);
  for (int t = 0; t < 4; ++t) add_slot(this->space, ring, 1, {ReplayRow{}});
  SampleProblem<TypeParam> p(2, 8);
  p.choose(ring, {0, 1});
  add_slot(this->space, ring, 1, {ReplayRow{}});  // overwrites row 0
  p.prioritise(ring, {1.0, 0.0}, {7.0f, 7.0f});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[0], one);
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[1], 7 * one);
  EXPECT_EQ(p.count().dropped, 1u);
  p.choose(ring, {0, 1});  // of the new row
  p.prioritise(ring, {1.0, 0.0}, {5.0f, 7.0f});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves)[0], 5 * one);
  EXPECT_EQ(p.count().dropped, 1u);
  EXPECT_EQ(TreeCopy(this->space, ring.tree).fault(), "");
}

TYPED_TEST(SampleTest, OfARowDrawnTwiceTheLastUsableDeltaCounts) {
  const auto ring = ring_with(this->space, std::vector<std::uint32_t>(4, one));
  SampleProblem<TypeParam> p(5, 8);
  p.choose(ring, {2, 2, 2, 3, 3});
  p.prioritise(ring, {1.0, 0.0}, {9.0f, 5.0f, std::numeric_limits<float>::quiet_NaN(), 8.0f, 6.0f});
  EXPECT_EQ(to_host(this->space, ring.tree.leaves), ([] {
              std::vector<std::uint32_t> leaves(32);
              leaves[0] = leaves[1] = one;
              leaves[2] = 5 * one;
              leaves[3] = 6 * one;
              return leaves;
            }()));
  EXPECT_EQ(TreeCopy(this->space, ring.tree).fault(), "");
}

TYPED_TEST(SampleTest, ASkippedStepLeavesThePrioritiesAndTheCounts) {
  const auto ring = ring_with(this->space, std::vector<std::uint32_t>(4, one));
  SampleProblem<TypeParam> p(2, 8);
  p.choose(ring, {1, 3});
  const auto skip = to_device<TypeParam, std::uint32_t>(this->space, {1});
  p.prioritise(ring, {1.0, 0.0}, {std::numeric_limits<float>::quiet_NaN(), 6.0f}, skip.data());
  EXPECT_EQ(TreeCopy(this->space, ring.tree).total(), 4u * one);
  EXPECT_EQ(TreeCopy(this->space, ring.tree).fault(), "");
  EXPECT_EQ(p.count().rejected, 0u);
}

TYPED_TEST(SampleTest, AnEmptyTreeGivesWeightlessRowsAndTakesNoPriorities) {
  const ReplayRing<TypeParam> ring(this->space, 100, 2, 1);
  SampleProblem<TypeParam> p(3, 8);
  p.sample(ring);
  p.collect_batch(ring, this->table, this->rules());
  EXPECT_EQ(to_host(this->space, p.weights), (std::vector<float>{0, 0, 0}));
  p.prioritise(ring, {1.0, 0.0}, {1, 1, 1});
  EXPECT_EQ(TreeCopy(this->space, ring.tree).total(), 0u);
}

TYPED_TEST(SampleTest, StatesHoldFeaturesThenTheAccountsOwnInputsThenZeros) {
  const ReplayRing<TypeParam> ring(this->space, 4, 2, 1);
  ReplayRow row{};
  row.bar = 11;
  row.action[0] = 7;
  row.action[1] = 2;
  row.action[2] = 1;
  row.bars_held_before = 3;
  row.bars_held_after = 0;
  row.before = {.5f, .01f, .02f, .03f};
  row.after = {-.25f, 0.0f, .04f, .05f};
  add_slot(this->space, ring, 1, {ReplayRow{}, row});
  SampleProblem<TypeParam> p(2, 16);
  Kokkos::deep_copy(this->space, p.states, -1.0f);
  p.choose(ring, {1, 0});
  GatherRules rules = this->rules();
  rules.reward = {100.0f, 4.0f};
  p.collect_batch(ring, this->table, rules);
  const auto states = to_host(this->space, p.states);
  const auto expect_state = [&](int at, float bar, const std::vector<float>& own) {
    const float* s = &states[at * 16];
    EXPECT_EQ(s[0], bar);
    EXPECT_EQ(s[1], bar + .5f);
    for (int i = 0; i < account_input_count; ++i) EXPECT_FLOAT_EQ(s[2 + i], own[i]) << i;
    for (int i = 7; i < 16; ++i) EXPECT_EQ(s[i], 0.0f) << i;
  };
  expect_state(0, 11, {.5f, .1f, std::log(4.0f) / std::log(9.0f), .2f, 0});
  expect_state(2, 12, {-.25f, 0, 0, .4f, 0});
  expect_state(1, 0, {0, 0, 0, 0, 0});
  expect_state(3, 1, {0, 0, 0, 0, 0});
  EXPECT_EQ(to_host(this->space, p.actions), (std::vector<std::uint8_t>{7, 0, 2, 0, 1, 0}));
  EXPECT_FLOAT_EQ(to_host(this->space, p.rewards)[0], 100 * (.05f - .03f) - 4 * .0625f);
}

TEST(Replay, AMillionRowsTakeAtMost80Megabytes) {
  const DefaultSpace space;
  const ReplayRing<DefaultSpace> ring(space, 1 << 20, 1024, 1);
  EXPECT_EQ(ring.capacity(), 1u << 20);
  EXPECT_LE(ring.bytes(), 80e6);
  EXPECT_GE(ring.bytes(), 56e6);  // all of it is counted
}

RC_GTEST_PROP(Replay, ARowKnowsWhichWriteOfItsSlotItIs, ()) {
  RingView ring;
  ring.envs = *rc::gen::inRange(1u, 5u);
  ring.slots = *rc::gen::inRange(1u, 12u);
  const auto written = *rc::gen::inRange<std::uint64_t>(0, 60);
  std::vector<std::uint64_t> slot(ring.slots, RingView::no_write);
  for (std::uint64_t w = 0; w < written; ++w) slot[w % ring.slots] = w;
  for (std::uint32_t i = 0; i < ring.envs * ring.slots; ++i)
    RC_ASSERT(ring.write_of(i, written) == slot[i / ring.envs]);
}

}  // namespace
}  // namespace vulpes::kernels::test
