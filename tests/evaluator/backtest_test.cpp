#include "vulpes/evaluator/backtest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "vulpes/market/features.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::evaluator {
namespace {

std::vector<std::pair<std::uint32_t, std::uint32_t>> ends(const std::vector<Walk>& walks) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> r;
  for (const Walk& w : walks) r.emplace_back(w.begin, w.end);
  return r;
}
using Ends = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

TEST(MakeWalks, OneSegmentIsOneWalk) {
  const std::vector<std::int32_t> segments(10, 0);
  const std::vector<std::uint8_t> usable(10, 1);
  EXPECT_EQ(ends(make_walks(0, 10, segments, usable, 0)), (Ends{{0, 10}}));
  EXPECT_EQ(ends(make_walks(3, 7, segments, usable, 0)), (Ends{{3, 7}}));
}

TEST(MakeWalks, WalksCutByLengthShareABar) {
  const std::vector<std::int32_t> segments(10, 0);
  const std::vector<std::uint8_t> usable(10, 1);
  // 9 decisions in walks of at most 4: the last bar of one is the first decision of the next.
  EXPECT_EQ(ends(make_walks(0, 10, segments, usable, 4)), (Ends{{0, 5}, {4, 9}, {8, 10}}));
  EXPECT_EQ(ends(make_walks(0, 9, segments, usable, 4)), (Ends{{0, 5}, {4, 9}}));
}

TEST(MakeWalks, NothingCrossesASegmentOrStartsUnusable) {
  const std::vector<std::int32_t> segments = {0, 0, 0, 0, 1, 1, 1, 2, 3, 3};
  const std::vector<std::uint8_t> usable = {0, 1, 1, 1, 0, 0, 1, 1, 1, 1};
  // Segment 1 has one usable bar, segment 2 is one bar: no decision can be marked there.
  EXPECT_EQ(ends(make_walks(0, 10, segments, usable, 0)), (Ends{{1, 4}, {8, 10}}));
  EXPECT_TRUE(make_walks(4, 8, segments, usable, 0).empty());
  EXPECT_TRUE(make_walks(5, 5, segments, usable, 0).empty());
}

TEST(MakeWalks, EveryDecisionIsInExactlyOneWalk) {
  const RandomKey key{3, 0};
  for (std::uint32_t trial = 0; trial < 200; ++trial) {
    const auto draw = [&](std::uint32_t i) { return random_words(key, Purpose::test, trial, i); };
    std::vector<std::int32_t> segments;
    std::vector<std::uint8_t> usable;
    const std::size_t bars = 1 + uniform_below(draw(1000)[0], 60);
    int warm = 0;
    for (std::uint32_t i = 0; i < bars; ++i) {
      const bool cut = i > 0 && uniform_below(draw(i)[0], 8) == 0;
      segments.push_back(i == 0 ? 0 : segments.back() + cut);
      if (i == 0 || cut) warm = static_cast<int>(uniform_below(draw(i)[1], 4));
      usable.push_back(warm-- <= 0);
    }
    const std::size_t begin = uniform_below(draw(1000)[1], static_cast<std::uint32_t>(bars)),
                      end = begin + uniform_below(draw(1000)[2], static_cast<std::uint32_t>(bars - begin + 1)),
                      longest = uniform_below(draw(1000)[3], 6);
    std::vector<int> decisions(bars, 0);
    for (const Walk& w : make_walks(begin, end, segments, usable, longest)) {
      ASSERT_LT(w.begin + 1, w.end);
      ASSERT_LE(w.end, end);
      ASSERT_TRUE(longest == 0 || w.end - w.begin - 1 <= longest);
      for (std::uint32_t t = w.begin; t + 1 < w.end; ++t) ++decisions[t];
    }
    for (std::size_t t = 0; t < bars; ++t) {
      const bool possible = t >= begin && t + 1 < end && usable[t] && segments[t] == segments[t + 1];
      ASSERT_EQ(decisions[t], possible ? 1 : 0) << "trial " << trial << ", bar " << t;
    }
  }
}

/// A market on the host, and a network whose actions depend on it.
struct Problem {
  io::Config config;
  market::Bars bars;
  market::Normaliser normaliser;
  kernels::NetworkShape shape;
  std::vector<float> parameters;
  kernels::GoalRules goal;

  Problem() {
    config.features.return_horizons = {1, 2, 4};
    config.features.volatility_windows = {8};
    config.features.mean_windows = {8, 16};
    config.features.volume_window = 16;
    bars = market::generate_synthetic(config.synthetic, {5, 0}, 0, 1200);
    const market::FeatureSet features = market::compute_features(bars, config.features);
    normaliser = market::Normaliser::fit(features, 0, 400, config.features.clip, nullptr);
    shape = agent::network_shape({24, 16, 1, 8, 11}, features.columns);
    const kernels::Network network(shape);
    parameters = agent::initial_parameters(network, {6, 1});
    for (const TensorSlice& t : network.layout.tensors()) {
      if (t.name.rfind("output.", 0) != 0 || !t.is_weight) continue;
      for (std::size_t i = 0; i < t.size(); ++i) parameters[t.offset + i] *= 10.0f;
    }
  }

  template <class Space>
  std::vector<WalkResult> run(const market::Bars& market_bars, const std::vector<Walk>& walks,
                              bool keep_states = false) const {
    const Space space;
    const market::FeatureSet features = market::compute_features(market_bars, config.features);
    const kernels::MarketTable<Space> table(space, market::account_bars(market_bars, config.account),
                                            normaliser.apply(features), features.columns, market_bars.segment);
    const kernels::Network network(shape);
    const auto device = allocate<Vector<float, Space>>(space, "vulpes::test::parameters", parameters.size());
    Kokkos::deep_copy(device, Kokkos::View<const float*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                                  parameters.data(), parameters.size()));
    const Actor<Space> actor{network, kernels::Support<float>::make(-2, 2, shape.atoms), device, goal};
    return backtest(space, actor, table, market::make_account_rules(config.account), 64, walks, keep_states);
  }
};

bool same_bits(const kernels::BacktestRecord& a, const kernels::BacktestRecord& b) {
  return std::memcmp(&a.log_growth, &b.log_growth, sizeof(double)) == 0 &&
         std::memcmp(&a.equity, &b.equity, sizeof(double)) == 0 &&
         std::memcmp(&a.exposure, &b.exposure, sizeof(double)) == 0 && a.fill_units == b.fill_units &&
         a.fill_price == b.fill_price && a.fee == b.fee && std::equal(a.action, a.action + kernels::branches, b.action);
}

void expect_same(const WalkResult& a, const WalkResult& b, std::size_t records) {
  ASSERT_GE(a.records.size(), records);
  ASSERT_GE(b.records.size(), records);
  for (std::size_t i = 0; i < records; ++i) ASSERT_TRUE(same_bits(a.records[i], b.records[i])) << "decision " << i;
}

template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
#define VULPES_AND_SPACE(S) , S
using EachSpace = SpaceList < void VULPES_FOR_EACH_SPACE(VULPES_AND_SPACE)
> ::Types;

template <class Space>
struct Backtest : testing::Test {
  const Problem problem;
};
TYPED_TEST_SUITE(Backtest, EachSpace);

TYPED_TEST(Backtest, AWalkAmongOthersEqualsTheWalkAlone) {
  const Problem& p = this->problem;
  std::vector<Walk> walks;  // more than one tile, of unequal lengths
  for (std::uint32_t i = 0; i < 21; ++i) walks.push_back({40 + 17 * i, 40 + 17 * i + 30 + 11 * (i % 5)});
  const auto together = p.run<TypeParam>(p.bars, walks);
  ASSERT_EQ(together.size(), walks.size());
  std::set<int> exposures;
  bool filled = false;
  for (std::size_t i = 0; i < walks.size(); ++i) {
    EXPECT_EQ(together[i].walk.begin, walks[i].begin);
    EXPECT_EQ(together[i].start_equity, p.config.account.initial_equity);
    ASSERT_EQ(together[i].records.size(), walks[i].end - walks[i].begin - 1);
    for (const auto& r : together[i].records) {
      exposures.insert(r.action[0]);
      filled = filled || r.fill_units != 0;
    }
    const auto alone = p.run<TypeParam>(p.bars, {walks[i]});
    ASSERT_EQ(alone[0].records.size(), together[i].records.size());
    expect_same(together[i], alone[0], alone[0].records.size());
  }
  EXPECT_GE(exposures.size(), 3u) << "the network always does the same: the test shows nothing";
  EXPECT_TRUE(filled);
}

TYPED_TEST(Backtest, SpacesAgreeInActions) {
  const Problem& p = this->problem;
  const std::vector<Walk> walks = {{40, 300}, {299, 600}, {600, 1200}};
  const auto here = p.run<TypeParam>(p.bars, walks), host = p.run<Kokkos::DefaultHostExecutionSpace>(p.bars, walks);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < walks.size(); ++i) {
    ASSERT_EQ(here[i].records.size(), host[i].records.size());
    for (std::size_t k = 0; k < here[i].records.size(); ++k) {
      differing += !std::equal(here[i].records[k].action, here[i].records[k].action + kernels::branches,
                               host[i].records[k].action);
    }
  }
  // Host spaces run the same products; another device may break a near tie the other way, now and then.
  EXPECT_LE(differing, is_host_space<TypeParam> ? 0u : 10u);
}

// cases.md: changing bars after t leaves actions and equity up to t bit-equal.
TYPED_TEST(Backtest, ChangingBarsAfterTLeavesActionsAndEquityUpToTBitEqual) {
  const Problem& p = this->problem;
  const Walk walk{40, 1200};
  const auto before = p.run<TypeParam>(p.bars, {walk});
  for (const std::uint32_t t : {41u, 400u, 700u, 1198u}) {
    market::Bars changed = p.bars;
    for (std::size_t i = t + 1; i < changed.size(); ++i) {
      const double factor = i % 2 ? 1.5 : 0.7;
      for (std::vector<double>* prices : {&changed.open, &changed.high, &changed.low, &changed.close})
        (*prices)[i] *= factor;
      changed.volume[i] += 1e3;
    }
    const auto after = p.run<TypeParam>(changed, {walk});
    // The decision at bar t - 1 is filled and marked in bar t, which is unchanged; so is the choice at bar t.
    const std::size_t marked = t - walk.begin;
    expect_same(before[0], after[0], marked);
    const auto &a = before[0].records[marked], &b = after[0].records[marked];
    EXPECT_TRUE(std::equal(a.action, a.action + kernels::branches, b.action)) << "the choice at bar " << t;
    EXPECT_FALSE(same_bits(a, b)) << "the changed bar " << t + 1 << " shows nowhere";
  }
}

TYPED_TEST(Backtest, KeptStatesAreFeaturesThenAccount) {
  const Problem& p = this->problem;
  const std::vector<Walk> walks = {{40, 60}, {100, 107}};
  const auto plain = p.run<TypeParam>(p.bars, walks), kept = p.run<TypeParam>(p.bars, walks, true);
  const std::vector<float> features = p.normaliser.apply(market::compute_features(p.bars, p.config.features));
  const int columns = static_cast<int>(features.size() / p.bars.size());
  for (std::size_t i = 0; i < walks.size(); ++i) {
    expect_same(plain[i], kept[i], plain[i].records.size());
    ASSERT_EQ(kept[i].states.size(), kept[i].records.size() * p.shape.state);
    for (std::size_t k = 0; k < kept[i].records.size(); ++k) {
      const float* state = &kept[i].states[k * p.shape.state];
      for (int j = 0; j < columns; ++j) ASSERT_EQ(state[j], features[(walks[i].begin + k) * columns + j]);
      // The first account input is the exposure that the decision before it left.
      EXPECT_EQ(state[columns], k == 0 ? 0.0f : static_cast<float>(kept[i].records[k - 1].exposure));
    }
  }
}

// The goal and the equity it is counted from begin again every window (64 bars here); the account does not.
TYPED_TEST(Backtest, TheGoalRestartsEveryWindowAndTheAccountDoesNot) {
  Problem p;
  const std::vector<Walk> walks = {{40, 260}, {300, 340}};
  const auto off = p.run<TypeParam>(p.bars, walks, true);
  p.goal = {true, 1.0f, 0.04f, 0.03f, 0.02f};  // some gaps are clipped; the spread is of training alone
  const auto on = p.run<TypeParam>(p.bars, walks, true);
  const int width = p.shape.state;
  const std::size_t gap = static_cast<std::size_t>(market::compute_features(p.bars, p.config.features).columns) + 5 - 1;
  bool acts_on_it = false;
  for (std::size_t i = 0; i < walks.size(); ++i) {
    const auto& records = on[i].records;
    ASSERT_EQ(records.size(), walks[i].end - walks[i].begin - 1u);
    double equity = p.config.account.initial_equity, reference = equity;
    std::set<float> seen;
    for (std::size_t k = 0; k < records.size(); ++k) {
      if (k % 64 == 0) reference = equity;
      const double expected =
          std::clamp(static_cast<double>(p.goal.growth) - std::log(equity / reference), -0.04, 0.04);
      EXPECT_NEAR(on[i].states[k * width + gap], 10 * expected, 1e-5) << "decision " << k;
      EXPECT_EQ(off[i].states[k * width + gap], 0.0f);
      if (k % 64 == 0) {
        EXPECT_FLOAT_EQ(on[i].states[k * width + gap], 0.3f);
      }
      seen.insert(on[i].states[k * width + gap]);
      EXPECT_NEAR(std::log(records[k].equity / equity), records[k].log_growth, 1e-12);
      equity = records[k].equity;
      acts_on_it =
          acts_on_it || !std::equal(records[k].action, records[k].action + kernels::branches, off[i].records[k].action);
    }
    EXPECT_GT(seen.size(), 3u);
  }
  EXPECT_TRUE(acts_on_it) << "the gap changes nothing: the test shows little";

  // A network that does not look at the gap does the same with goals and without, to the bit.
  const kernels::Network network(p.shape);
  const TensorSlice& first = network.layout[network.trunk_weight[0]];
  for (int r = 0; r < first.rows; ++r) p.parameters[first.offset + static_cast<std::size_t>(r) * width + gap] = 0;
  const auto blind = p.run<TypeParam>(p.bars, walks);
  p.goal = {};
  const auto without = p.run<TypeParam>(p.bars, walks);
  for (std::size_t i = 0; i < walks.size(); ++i) expect_same(blind[i], without[i], without[i].records.size());
}

TYPED_TEST(Backtest, ARuinedAccountStops) {
  Problem p;
  p.config.account.ruin_fraction = 0.985;  // a loss of 1.5 % ends it
  const auto results = p.run<TypeParam>(p.bars, {{40, 1200}, {40, 50}});
  const WalkResult& r = results[0];
  ASSERT_TRUE(r.ruined);
  ASSERT_LT(r.records.size(), 1159u);
  EXPECT_DOUBLE_EQ(r.records.back().equity, 0.985 * p.config.account.initial_equity);
  EXPECT_EQ(r.records.back().exposure, 0.0);
  for (std::size_t k = 0; k + 1 < r.records.size(); ++k)
    EXPECT_GT(r.records[k].equity, 0.985 * p.config.account.initial_equity);
}

TEST(MeanGrowth, IsAMeanOverDecisionsNotWalks) {
  std::vector<WalkResult> results(3);
  for (const double g : {0.01, 0.03}) results[0].records.push_back({g, 0, 0, 0, 0, 0, {}});
  results[1].records.push_back({-0.01, 0, 0, 0, 0, 0, {}});
  EXPECT_NEAR(mean_growth(results), 0.01, 1e-15);
  EXPECT_EQ(mean_growth({}), 0.0);
}

}  // namespace
}  // namespace vulpes::evaluator
