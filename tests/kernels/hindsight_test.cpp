// Hindsight relabelling: which rows, which donors, and what follows for gap, bonus and return.
#include "vulpes/kernels/formulas/hindsight.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "episode.hpp"

namespace vulpes::kernels::test {
namespace {

/// 4 standard deviations of a binomial count.
double tolerance(double n, double share) { return 4 * std::sqrt(n * share * (1 - share)) + 1e-9; }

template <class Space>
struct HindsightTest : testing::Test {
  Space space;
  MarketTable<Space> table = counting_table(space, 1024);

  GatherRules rules(float share, std::uint32_t horizon = 64) const {
    GatherRules r;
    r.window = 8;
    r.goal = {true, 0.0f, 1000.0f, 0.1f, 0.0f};
    r.hindsight = {share, horizon, {3, 1}};
    return r;
  }
  /// How often each goal was in effect for `row`, drawn `batch` times at each of `iterations` iterations.
  std::map<float, int> goals(const ReplayRing<Space>& ring, const GatherRules& r, std::uint32_t row, int iterations = 8,
                             int batch = 64) const {
    SampleProblem<Space> p(batch, test_state_width);
    std::map<float, int> counts;
    const auto rows = to_host(space, ring.rows);
    for (int i = 0; i < iterations; ++i) {
      p.set_iteration(static_cast<std::uint64_t>(i));
      p.choose(ring, std::vector<std::uint32_t>(batch, row));
      p.collect_batch(ring, table, r);
      const auto goals = to_host(space, p.goals);
      const auto donors = to_host(space, p.donors);
      const auto relabelled = to_host(space, p.relabelled);
      for (int k = 0; k < batch; ++k) {
        ++counts[goals[k]];
        EXPECT_EQ(relabelled[k], donors[k] == no_row ? 0 : 1);
        EXPECT_EQ(goals[k], donors[k] == no_row ? rows[row].goal : rows[donors[k]].after.log_growth);
      }
    }
    return counts;
  }
  std::set<float> goal_set(const ReplayRing<Space>& ring, const GatherRules& r, std::uint32_t row) const {
    std::set<float> set;
    for (const auto& [goal, count] : goals(ring, r, row)) set.insert(goal);
    return set;
  }
};
TYPED_TEST_SUITE(HindsightTest, EachSpace);

/// Writes an episode with growth first + 1, first + 2 ... after its rows.
template <class Space>
void add_episode(const Space& space, const ReplayRing<Space>& ring, EpisodeRows& account, int rows, float first,
                 std::uint8_t end) {
  for (int t = 0; t < rows; ++t) {
    const std::uint8_t flags = t + 1 == rows ? end : std::uint8_t(0);
    add_slot(space, ring, 1, {account.to(first + static_cast<float>(t + 1), flags, -1.0f)});
  }
}

// cases.md: growth after rows 0..4 is 1..5: from t = 4 the goal is 5, from t = 0 any of 1..5, never 0, never another
// episode's.
TYPED_TEST(HindsightTest, TheGoalIsTheGrowthAfterThisRowOrALaterOneOfItsEpisode) {
  for (const std::uint8_t end : {ReplayRow::truncated, ReplayRow::terminal}) {
    const ReplayRing<TypeParam> ring(this->space, 32, 1, 1);
    EpisodeRows account;
    add_episode(this->space, ring, account, 5, 0, end);
    add_episode(this->space, ring, account, 6, 100, 0);
    const auto rules = this->rules(1);
    using F = std::set<float>;
    EXPECT_EQ(this->goal_set(ring, rules, 0), (F{1, 2, 3, 4, 5}));
    EXPECT_EQ(this->goal_set(ring, rules, 2), (F{3, 4, 5}));
    EXPECT_EQ(this->goal_set(ring, rules, 4), (F{5}));
    EXPECT_EQ(this->goal_set(ring, rules, 5), (F{101, 102, 103, 104, 105, 106}));
    EXPECT_EQ(this->goal_set(ring, rules, 10), (F{106}));  // the newest row
  }
}

// cases.md: also after the ring has wrapped.
TYPED_TEST(HindsightTest, TheSameAfterTheRingHasWrapped) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 1);
  EpisodeRows account;
  add_episode(this->space, ring, account, 6, 200, ReplayRow::truncated);
  add_episode(this->space, ring, account, 5, 0, ReplayRow::truncated);  // slots 6, 7, 0, 1, 2
  add_episode(this->space, ring, account, 2, 100, 0);                   // slots 3, 4; slot 5 is of the first episode
  const auto rules = this->rules(1);
  using F = std::set<float>;
  EXPECT_EQ(this->goal_set(ring, rules, 6), (F{1, 2, 3, 4, 5}));
  EXPECT_EQ(this->goal_set(ring, rules, 7), (F{2, 3, 4, 5}));
  EXPECT_EQ(this->goal_set(ring, rules, 0), (F{3, 4, 5}));
  EXPECT_EQ(this->goal_set(ring, rules, 2), (F{5}));
  EXPECT_EQ(this->goal_set(ring, rules, 4), (F{102}));
  EXPECT_EQ(this->goal_set(ring, rules, 5), (F{206}));
}

// Behind the newest row lies the oldest one, whose offset may be just what the next row's would be.
TYPED_TEST(HindsightTest, NoDonorBehindTheNewestRow) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 1);
  EpisodeRows account;
  add_episode(this->space, ring, account, 8, 200, ReplayRow::truncated);
  add_episode(this->space, ring, account, 3, 0, 0);
  const auto rules = this->rules(1);
  EXPECT_EQ(this->goal_set(ring, rules, 0), (std::set<float>{1, 2, 3}));
  EXPECT_EQ(this->goal_set(ring, rules, 2), (std::set<float>{3}));
  EXPECT_EQ(this->goal_set(ring, rules, 3), (std::set<float>{204, 205, 206, 207, 208}));
}

TYPED_TEST(HindsightTest, DonorsAreUniformWithinEpisodeAndHorizon) {
  const ReplayRing<TypeParam> ring(this->space, 128, 1, 1);
  EpisodeRows account;
  add_episode(this->space, ring, account, 50, 0, ReplayRow::truncated);
  add_episode(this->space, ring, account, 50, 100, 0);
  const auto expect_uniform = [&](std::uint32_t row, std::uint32_t horizon, int donors) {
    constexpr int n = 64 * 200;
    const auto counts = this->goals(ring, this->rules(1, horizon), row, 200);
    ASSERT_EQ(static_cast<int>(counts.size()), donors) << "row " << row << ", horizon " << horizon;
    double chi_square = 0;
    for (const auto& [goal, count] : counts)
      chi_square += std::pow(count - n / double(donors), 2) / (n / double(donors));
    // Mean donors - 1, variance twice that; beyond 4.5 deviations once in some 1e5 of such tests.
    EXPECT_LT(chi_square, donors - 1 + 4.5 * std::sqrt(2.0 * (donors - 1)) + 1e-9);
    EXPECT_EQ(counts.begin()->first, to_host(this->space, ring.rows)[row].after.log_growth);  // itself included
  };
  expect_uniform(0, 64, 50);
  expect_uniform(0, 7, 7);
  expect_uniform(45, 64, 5);
  expect_uniform(45, 3, 3);
  expect_uniform(20, 1, 1);
  expect_uniform(60, 16, 16);
  expect_uniform(90, 64, 10);  // up to the newest row
}

TYPED_TEST(HindsightTest, TheShareIsKeptAtEveryPositionOfTheBatch) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 1);
  EpisodeRows account;
  add_episode(this->space, ring, account, 8, 0, ReplayRow::truncated);
  constexpr int batch = 48, iterations = 3000;
  constexpr double share = 0.3;
  SampleProblem<TypeParam> p(batch, test_state_width);
  std::vector<int> at(batch), pairs(batch);
  p.choose(ring, std::vector<std::uint32_t>(batch, 2));
  std::vector<std::uint8_t> before;
  for (int i = 0; i < iterations; ++i) {
    p.set_iteration(static_cast<std::uint64_t>(i));
    p.collect_batch(ring, this->table, this->rules(share));
    const auto relabelled = to_host(this->space, p.relabelled);
    for (int k = 0; k < batch; ++k) {
      at[k] += relabelled[k];
      pairs[k] += relabelled[k] && relabelled[(k + 1) % batch];
    }
    EXPECT_NE(relabelled, before) << "the same rows twice";
    p.collect_batch(ring, this->table, this->rules(share));
    EXPECT_EQ(to_host(this->space, p.relabelled), relabelled);  // a pure function of the counters
    before = relabelled;
  }
  for (int k = 0; k < batch; ++k) {
    EXPECT_NEAR(at[k], iterations * share, tolerance(iterations, share)) << k;
    EXPECT_NEAR(pairs[k], iterations * share * share, tolerance(iterations, share * share)) << k;
  }
  EXPECT_NEAR(std::accumulate(at.begin(), at.end(), 0), batch * iterations * share,
              tolerance(batch * iterations, share));
  p.collect_batch(ring, this->table, this->rules(0));
  for (const std::uint8_t r : to_host(this->space, p.relabelled)) EXPECT_EQ(r, 0);
}

TYPED_TEST(HindsightTest, RowsOfAnEmptyTreeAreNotRelabelled) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 1);
  SampleProblem<TypeParam> p(3, test_state_width);
  p.sample(ring);
  p.collect_batch(ring, this->table, this->rules(1));
  EXPECT_EQ(to_host(this->space, p.relabelled), (std::vector<std::uint8_t>{0, 0, 0}));
}

// The peak before a relabelled row is what its account remembers: a goal that is exactly a peak is reached once.
TYPED_TEST(HindsightTest, AGoalThatIsAPeakPaysOnceInAWindow) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 5);
  EpisodeRows account;
  for (const float growth : {0.1f, 0.3f, 0.2f, 0.3f, 0.4f})
    add_slot(this->space, ring, 5, {account.to(growth, growth == 0.4f ? ReplayRow::truncated : std::uint8_t(0))});
  auto rules = this->rules(1);
  rules.n_step = 5;
  rules.gamma = 1;
  rules.reward = {0, 0};
  rules.goal.bonus = 1;
  SampleProblem<TypeParam> p(64, test_state_width);
  p.choose(ring, std::vector<std::uint32_t>(64, 0));
  p.collect_batch(ring, this->table, rules);
  for (float r : to_host(this->space, p.rewards)) EXPECT_EQ(r, 1.0f);  // whatever the donor
  p.choose(ring, std::vector<std::uint32_t>(64, 2));                   // after the peak of 0.3
  p.collect_batch(ring, this->table, rules);
  const auto rewards = to_host(this->space, p.rewards), goals = to_host(this->space, p.goals);
  std::set<float> seen;
  for (int k = 0; k < 64; ++k) {
    seen.insert(goals[k]);
    EXPECT_EQ(rewards[k], goals[k] == 0.4f ? 1.0f : 0.0f) << goals[k];
  }
  EXPECT_EQ(seen, (std::set<float>{0.2f, 0.3f, 0.4f}));
}

TYPED_TEST(HindsightTest, BatchesEqualAPlainComputationFromTheWholeHistory) {
  EXPECT_TRUE(rc::check("relabelled batches against history", [&] {
    const int n = *rc::gen::inRange(1, 5), envs = *rc::gen::element(1, 2, 3, 7);
    const int wanted = *rc::gen::inRange(1, 60), end_share = *rc::gen::element(0, 1, 3, 8);  // ends in 16 bars
    const auto horizon = *rc::gen::element(1u, 2u, 5u, 64u);
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const float share = *rc::gen::element(0.5f, 1.0f), bonus = *rc::gen::element(0.0f, 2.0f);
    const ReplayRing<TypeParam> ring(this->space, wanted, envs, n);
    const int slots = ring.slots, times = 2 * slots + *rc::gen::inRange(1, 20);
    GatherRules rules = this->rules(share, horizon);
    rules.n_step = n;
    rules.gamma = 0.9f;
    rules.reward = {5, 0.2f};
    rules.goal.bonus = bonus;
    rules.goal.clip = 0.3f;

    std::vector<std::vector<ReplayRow>> history;  // [time][account]
    std::vector<EpisodeRows> accounts(envs);
    std::vector<float> goals(envs, 0.1f);
    for (int t = 0; t < times; ++t) {
      std::vector<ReplayRow> rows;
      for (int e = 0; e < envs; ++e) {
        const auto w = random_words({seed, 0}, Purpose::test, t, static_cast<std::uint32_t>(e));
        const std::uint8_t flags = static_cast<int>(w[0] % 16) >= end_share ? std::uint8_t(0)
                                   : w[1] % 2                               ? ReplayRow::terminal
                                                                            : ReplayRow::truncated;
        const float growth = w[3] % 5 == 0 ? 0.0f : 0.2f * (uniform_float(w[2]) - 0.45f);  // flat now and then
        rows.push_back(accounts[e].by(growth, flags, goals[e]));
        if (flags != 0) goals[e] = 0.4f * uniform_float(w[3]);
      }
      add_slot(this->space, ring, n, rows);
      history.push_back(rows);
    }
    const std::vector<std::uint32_t> valid = valid_rows(this->space, ring);
    if (valid.empty()) return;
    constexpr int batch = 160;
    SampleProblem<TypeParam> p(batch, test_state_width);
    p.set_iteration(seed);
    p.sample(ring);
    p.collect_batch(ring, this->table, rules);
    const auto rows = to_host(this->space, p.draws.rows), donors = to_host(this->space, p.donors);
    const auto in_effect = to_host(this->space, p.goals), rewards = to_host(this->space, p.rewards);
    const auto states = to_host(this->space, p.states);
    const auto relabelled = to_host(this->space, p.relabelled);
    int count = 0;
    for (int k = 0; k < batch; ++k) {
      const int env = static_cast<int>(rows[k]) % envs, slot = static_cast<int>(rows[k]) / envs;
      const int t = slot + (times - 1 - slot) / slots * slots;  // when it was written
      const auto at = [&](int time) -> const ReplayRow& { return history[time][env]; };
      float goal = at(t).goal;
      if (relabelled[k]) {
        ++count;
        std::vector<std::uint32_t> allowed;
        for (int j = t; j < times && j < t + static_cast<int>(horizon); ++j) {
          allowed.push_back(ring.view.row(static_cast<std::uint64_t>(j), static_cast<std::uint32_t>(env)));
          if (at(j).flags != 0) break;
        }
        const auto found = std::find(allowed.begin(), allowed.end(), donors[k]);
        RC_ASSERT(found != allowed.end());
        goal = at(t + static_cast<int>(found - allowed.begin())).after.log_growth;
      }
      RC_ASSERT(in_effect[k] == goal);
      bool reached = goal <= 0;
      for (int j = t - at(t).episode_offset; j < t; ++j) reached = reached || at(j).after.log_growth >= goal;
      double sum = 0, discount = 1;
      int last = t;
      for (int j = t; j < t + n; ++j, discount *= 0.9) {
        const ReplayRow& r = at(last = j);
        sum += discount * (5 * (static_cast<double>(r.after.log_growth) - r.before.log_growth) - 0.2 * 0.25);
        if (!reached && r.after.log_growth >= goal) {
          reached = true;
          sum += discount * bonus;
        }
        if (r.flags != 0) break;
      }
      RC_ASSERT(std::abs(rewards[k] - sum) < 1e-4);
      const auto gap = [&](float growth) { return 10 * std::clamp(goal - growth, -0.3f, 0.3f); };
      RC_ASSERT(states[k * test_state_width + gap_column] == gap(at(t).before.log_growth));
      RC_ASSERT(states[(batch + k) * test_state_width + gap_column] == gap(at(last).after.log_growth));
    }
    RC_ASSERT(std::abs(count - share * batch) <= 1.3 * tolerance(batch, share));
  }));
}

TYPED_TEST(HindsightTest, RelabelledRowsLeaveTheirPriorityUnlessAsked) {
  constexpr std::uint32_t one = 1u << 20;
  const auto leaves_after = [&](bool too) {
    const ReplayRing<TypeParam> ring(this->space, 4, 1, 1);
    for (int t = 0; t < 4; ++t) add_slot(this->space, ring, 1, {ReplayRow{}});
    SampleProblem<TypeParam> p(5, test_state_width);
    p.choose(ring, {0, 1, 2, 2, 3});
    write(this->space, p.relabelled, 0, std::vector<std::uint8_t>{0, 1, 0, 1, 1});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    PriorityRules rules{1.0, 0.0};
    rules.relabelled_too = too;
    p.prioritise(ring, rules, {5, 6, 7, 8, nan}, nullptr, p.relabelled.data());
    EXPECT_EQ(p.count().rejected, too ? 1u : 0u);
    EXPECT_EQ(TreeCopy(this->space, ring.tree).fault(), "");
    auto leaves = to_host(this->space, ring.tree.leaves);
    leaves.resize(4);
    return leaves;
  };
  using Leaves = std::vector<std::uint32_t>;
  EXPECT_EQ(leaves_after(false), (Leaves{5 * one, one, 7 * one, one}));  // row 2: of its two draws only one counts
  EXPECT_EQ(leaves_after(true), (Leaves{5 * one, 6 * one, 8 * one, one}));
}

}  // namespace
}  // namespace vulpes::kernels::test
