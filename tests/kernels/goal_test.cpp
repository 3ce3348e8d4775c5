// The gap to the goal that the network sees, and the bonus for reaching it.
#include "vulpes/kernels/formulas/goal.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "episode.hpp"

namespace vulpes::kernels::test {
namespace {

constexpr GoalRules with_bonus(float bonus) { return {true, bonus, 0.5f, 0.1f, 0.0f}; }

TEST(Goal, TheGapIsClippedAndZeroWhenOff) {
  const GoalRules rules{true, 1, 0.5f, 0.1f, 0};
  EXPECT_FLOAT_EQ(goal_gap(rules, 0.1f, 0.03f), 0.07f);
  EXPECT_FLOAT_EQ(goal_gap(rules, 0.1f, 0.2f), -0.1f);
  EXPECT_EQ(goal_gap(rules, 0.7f, 0.1f), 0.5f);
  EXPECT_EQ(goal_gap(rules, 0.1f, 1.1f), -0.5f);
  GoalRules off = rules;
  off.on = false;
  EXPECT_EQ(goal_gap(off, 0.7f, 0.1f), 0.0f);
}

TEST(Goal, IsInEffectWithABonusOrWithHindsight) {
  io::Config c;
  EXPECT_FALSE(make_goal_rules(c).on);
  c.reward.goal_bonus = 0.5;
  c.goal = {0.2, 0.05, 0.3};
  GoalRules r = make_goal_rules(c);
  EXPECT_TRUE(r.on && r.bonus == 0.5f && r.growth == 0.2f && r.spread == 0.05f && r.clip == 0.3f);
  c.reward.goal_bonus = 0;
  c.hindsight.share = 0.1;
  r = make_goal_rules(c);
  EXPECT_TRUE(r.on && r.bonus == 0.0f);
}

TEST(Goal, OfAnEpisodeIsUniformAroundGrowth) {
  const GoalRules rules{true, 0, 1, 0.1f, 0.04f};
  EXPECT_FLOAT_EQ(episode_goal(rules, 0.0f), 0.06f);
  EXPECT_FLOAT_EQ(episode_goal(rules, 0.5f), 0.1f);
  EXPECT_FLOAT_EQ(episode_goal(rules, 1.0f), 0.14f);
}

TEST(Goal, ThePeakIsTheGrowthWithoutItsDrawdown) {
  EXPECT_EQ(peak_growth(0.25f, 0.0f), 0.25f);
  EXPECT_NEAR(peak_growth(0.1f, static_cast<float>(1 - std::exp(-0.3))), 0.4f, 1e-6);
  EXPECT_NEAR(peak_growth(-0.2f, static_cast<float>(1 - std::exp(-0.2))), 0.0f, 1e-7);  // never above the start
  EXPECT_GE(peak_growth(-0.2f, static_cast<float>(1 - std::exp(-0.2))), 0.0f);
}

/// Bonuses of the decisions of an episode that follow a state with this growth and drawdown.
std::vector<float> bonuses(float goal, float growth, float drawdown, const std::vector<float>& after) {
  FirstReach reach(with_bonus(2), goal, growth, drawdown);
  std::vector<float> paid;
  for (float g : after) paid.push_back(reach.bonus(g));
  return paid;
}

TEST(Goal, TheBonusIsPaidWhereTheGoalIsFirstReached) {
  using F = std::vector<float>;
  EXPECT_EQ(bonuses(0.1f, 0, 0, {0.05f, 0.1f, 0.2f, 0.05f, 0.3f}), (F{0, 2, 0, 0, 0}));  // exactly at it counts
  EXPECT_EQ(bonuses(0.1f, 0.05f, 0, {0.09f, 0.08f}), (F{0, 0}));
  // An earlier peak at or above the goal: paid there.
  EXPECT_EQ(bonuses(0.1f, 0.05f, static_cast<float>(1 - std::exp(-0.1)), {0.12f, 0.2f}), (F{0, 0}));
  EXPECT_EQ(bonuses(0.1f, 0.1f, 0, {0.12f}), (F{0}));
  // An earlier peak below it.
  EXPECT_EQ(bonuses(0.1f, 0.05f, static_cast<float>(1 - std::exp(-0.04)), {0.12f, 0.2f}), (F{2, 0}));
  // The start is at 0 and counts.
  EXPECT_EQ(bonuses(0.0f, 0, 0, {0.01f}), (F{0}));
  EXPECT_EQ(bonuses(-0.1f, -0.2f, static_cast<float>(1 - std::exp(-0.2)), {0.01f}), (F{0}));
}

template <class Space>
struct GoalTest : testing::Test {
  Space space;
  MarketTable<Space> table = counting_table(space, 64);
  const std::vector<float> growths = {0.02f, 0.06f, 0.04f, 0.11f, 0.03f, 0.09f, 0.15f, 0.12f};
  static constexpr float goal = 0.1f;

  /// An episode of those growths, then one with the same but a goal that is out of reach.
  ReplayRing<Space> ring(int n) const {
    const ReplayRing<Space> r(space, 16, 1, n);
    EpisodeRows account;
    for (float wanted : {goal, 0.5f}) {
      for (std::size_t t = 0; t < growths.size(); ++t)
        add_slot(space, r, n, {account.to(growths[t], t == 7 ? ReplayRow::truncated : std::uint8_t(0), wanted)});
    }
    return r;
  }
  GatherRules rules(int n) const {
    GatherRules r;
    r.reward = {10, 0.1f};
    r.gamma = 0.5f;
    r.n_step = n;
    r.window = 8;
    r.goal = with_bonus(3);
    return r;
  }
  SampleProblem<Space> gathered(const ReplayRing<Space>& from, const GatherRules& r) const {
    SampleProblem<Space> p(16, test_state_width);
    std::vector<std::uint32_t> all(16);
    for (std::uint32_t i = 0; i < 16; ++i) all[i] = i;
    p.choose(from, all);
    p.collect_batch(from, table, r);
    return p;
  }
};
TYPED_TEST_SUITE(GoalTest, EachSpace);

TYPED_TEST(GoalTest, ReturnsHoldTheBonusOnceDiscountedToWhereItIsPaid) {
  for (const int n : {1, 3}) {
    const auto ring = this->ring(n);
    auto rules = this->rules(n);
    const auto with = to_host(this->space, this->gathered(ring, rules).rewards);
    rules.goal.bonus = 0;
    const auto without = to_host(this->space, this->gathered(ring, rules).rewards);
    for (int t = 0; t < 16; ++t) {
      // Growth passes 0.1 first at the fourth decision (t = 3), falls below, and passes it again at t = 6.
      const int ahead = 3 - t;
      const double bonus = ahead >= 0 && ahead < n ? 3 * std::pow(0.5, ahead) : 0;
      EXPECT_NEAR(with[t] - without[t], bonus, 1e-6) << "n " << n << ", row " << t;
    }
  }
}

TYPED_TEST(GoalTest, StatesHoldTheGapBeforeAndAfter) {
  const auto ring = this->ring(2);
  const auto p = this->gathered(ring, this->rules(2));
  const auto states = to_host(this->space, p.states);
  EXPECT_EQ(to_host(this->space, p.goals)[3], this->goal);
  EXPECT_EQ(to_host(this->space, p.goals)[8], 0.5f);
  for (int t = 0; t < 8; ++t) {
    const float before = t == 0 ? 0.0f : this->growths[t - 1], after = this->growths[std::min(t + 1, 7)];
    EXPECT_FLOAT_EQ(states[t * test_state_width + gap_column], 10 * (0.1f - before)) << t;
    EXPECT_FLOAT_EQ(states[(16 + t) * test_state_width + gap_column], 10 * (0.1f - after)) << t;
    EXPECT_FLOAT_EQ(states[(8 + t) * test_state_width + gap_column], 10 * (0.5f - before)) << t;
  }
  for (const std::uint8_t r : to_host(this->space, p.relabelled)) EXPECT_EQ(r, 0);
  for (const std::uint32_t d : to_host(this->space, p.donors)) EXPECT_EQ(d, no_row);
}

TYPED_TEST(GoalTest, OffTheBatchIsBitIdenticalToOneWithoutGoals) {
  const auto ring = this->ring(3);
  auto rules = this->rules(3);
  rules.goal.bonus = 0;
  const auto seen = this->gathered(ring, rules);  // in effect, but nothing is paid
  rules.goal.on = false;
  rules.goal.bonus = 3;  // means nothing when off
  const auto off = this->gathered(ring, rules);
  rules.goal = {};
  const auto plain = this->gathered(ring, rules);
  const auto same = [&](const auto& a, const auto& b) {
    const auto x = to_host(this->space, a), y = to_host(this->space, b);
    return std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
  };
  for (const auto* p : {&seen, &off}) {
    EXPECT_TRUE(same(p->rewards, plain.rewards));
    EXPECT_TRUE(same(p->discounts, plain.discounts));
    EXPECT_TRUE(same(p->weights, plain.weights));
    EXPECT_TRUE(same(p->actions, plain.actions));
  }
  EXPECT_TRUE(same(off.states, plain.states));
  auto with_gaps = to_host(this->space, seen.states);
  const auto without = to_host(this->space, plain.states);
  for (std::size_t i = gap_column; i < without.size(); i += test_state_width) {
    EXPECT_EQ(without[i], 0.0f);
    EXPECT_NE(with_gaps[i], 0.0f);
    with_gaps[i] = 0;
  }
  EXPECT_EQ(with_gaps, without);
}

TYPED_TEST(GoalTest, NextReturnsAndExposuresBelongToTheRowsBar) {
  const auto ring = this->ring(3);
  const auto p = this->gathered(ring, this->rules(3));
  const auto returns = to_host(this->space, p.next_returns), exposures = to_host(this->space, p.exposures);
  for (int t = 0; t < 16; ++t) {
    EXPECT_EQ(returns[t], static_cast<float>((100.0 + (t + 1) % 7) / (100.0 + t % 7) - 1.0)) << t;
    EXPECT_EQ(exposures[t], 0.5f);
  }
}

}  // namespace
}  // namespace vulpes::kernels::test
