#include "vulpes/kernels/formulas/n_step_return.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>

#include "replay_fixture.hpp"
#include "vulpes/core/errors.hpp"

namespace vulpes::kernels::test {
namespace {

/// One account's bars, in order: growth of each and how its episode ends there.
class Bars {
 public:
  ReplayRow next(float growth, std::uint8_t flags = 0) {
    ReplayRow row{};
    row.bar = bar_++;
    row.flags = flags;
    row.episode_offset = offset_++;
    row.before.log_growth = growth_;
    row.after.log_growth = growth_ += growth;
    if (flags != 0) {
      offset_ = 0;
      growth_ = 0;
    }
    return row;
  }

 private:
  std::uint32_t bar_ = 0;
  std::uint16_t offset_ = 0;
  float growth_ = 0;
};

template <class Space>
struct NStepTest : testing::Test {
  Space space;
  MarketTable<Space> table = counting_table(space, 1024);

  GatherRules rules(int n, float gamma) const {
    GatherRules r;
    r.n_step = n;
    r.gamma = gamma;
    r.window = 16;
    return r;
  }
  struct Result {
    std::vector<float> rewards, discounts;
    std::vector<int> next_bar;
  };
  Result returns(const ReplayRing<Space>& ring, const GatherRules& r, const std::vector<std::uint32_t>& rows) {
    SampleProblem<Space> p(static_cast<int>(rows.size()), 8);
    p.choose(ring, rows);
    p.collect_batch(ring, table, r);
    const auto states = to_host(space, p.states);
    Result result{to_host(space, p.rewards), to_host(space, p.discounts), {}};
    for (std::size_t k = 0; k < rows.size(); ++k) {
      result.next_bar.push_back(static_cast<int>(states[(rows.size() + k) * 8]));
    }
    return result;
  }
};
TYPED_TEST_SUITE(NStepTest, EachSpace);

TYPED_TEST(NStepTest, RingOfEightThirteenRowsThreeSteps) {
  const ReplayRing<TypeParam> ring(this->space, 8, 1, 3);
  Bars bars;
  for (int t = 0; t < 13; ++t) add_slot(this->space, ring, 3, {bars.next(1)});
  EXPECT_EQ(valid_rows(this->space, ring), (std::vector<std::uint32_t>{0, 1, 2, 5, 6, 7}));
  // Across the wrap: row 7 is bar 7, then bars 8 and 9 in slots 0 and 1.
  const auto result = this->returns(ring, this->rules(3, 0.5f), {7, 2});
  EXPECT_EQ(result.rewards, (std::vector<float>{1.75f, 1.75f}));
  EXPECT_EQ(result.next_bar, (std::vector<int>{10, 13}));
}

TYPED_TEST(NStepTest, AllStartsOfAnEpisodeThatEndsInATerminal) {
  const ReplayRing<TypeParam> ring(this->space, 16, 1, 3);
  Bars bars;
  for (int t = 0; t < 5; ++t) {
    add_slot(this->space, ring, 3, {bars.next(1, t == 4 ? ReplayRow::terminal : std::uint8_t(0))});
    if (t == 3) {
      EXPECT_EQ(valid_rows(this->space, ring), (std::vector<std::uint32_t>{0, 1}));
    }
  }
  EXPECT_EQ(valid_rows(this->space, ring), (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
  const auto result = this->returns(ring, this->rules(3, 1.0f), {0, 1, 2, 3, 4});
  EXPECT_EQ(result.rewards, (std::vector<float>{3, 3, 3, 2, 1}));  // lengths
  EXPECT_EQ(result.discounts, (std::vector<float>{1, 1, 0, 0, 0}));
}

TYPED_TEST(NStepTest, ReturnAndDiscountOfWholeTerminalAndTruncatedWindows) {
  const auto of = [&](std::uint8_t second) {
    const ReplayRing<TypeParam> ring(this->space, 8, 1, 3);
    Bars bars;
    add_slot(this->space, ring, 3, {bars.next(1)});
    add_slot(this->space, ring, 3, {bars.next(1, second)});
    add_slot(this->space, ring, 3, {bars.next(1)});
    const auto result = this->returns(ring, this->rules(3, 0.5f), {0});
    return std::make_tuple(result.rewards[0], result.discounts[0], result.next_bar[0]);
  };
  EXPECT_EQ(of(0), std::make_tuple(1.75f, .125f, 3));
  EXPECT_EQ(of(ReplayRow::terminal), std::make_tuple(1.5f, 0.0f, 2));
  EXPECT_EQ(of(ReplayRow::truncated), std::make_tuple(1.5f, .25f, 2));
}

TYPED_TEST(NStepTest, NoReturnCrossesIntoTheNextEpisode) {
  for (std::uint8_t end : {ReplayRow::terminal, ReplayRow::truncated}) {
    const ReplayRing<TypeParam> ring(this->space, 16, 1, 3);
    Bars bars;
    for (int t = 0; t < 4; ++t) add_slot(this->space, ring, 3, {bars.next(1, t == 3 ? end : std::uint8_t(0))});
    for (int t = 0; t < 4; ++t) add_slot(this->space, ring, 3, {bars.next(100)});
    EXPECT_EQ(valid_rows(this->space, ring), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
    const auto result = this->returns(ring, this->rules(3, 1.0f), {0, 1, 2, 3, 4, 5});
    EXPECT_EQ(result.rewards, (std::vector<float>{3, 3, 2, 1, 300, 300}));
  }
}

TYPED_TEST(NStepTest, AnotherAccountsRowsAreNotPartOfAReturn) {
  const ReplayRing<TypeParam> ring(this->space, 8, 2, 2);
  Bars first, second;
  for (int t = 0; t < 4; ++t) add_slot(this->space, ring, 2, {first.next(1), second.next(100)});
  const auto result = this->returns(ring, this->rules(2, 1.0f), {0, 1, 4, 5});
  EXPECT_EQ(result.rewards, (std::vector<float>{2, 200, 2, 200}));
}

TYPED_TEST(NStepTest, ARingShorterThanTheWindowIsAnError) {
  const ReplayRing<TypeParam> ring(this->space, 8, 4, 1);
  EXPECT_THROW(close_windows(this->space, ring, 3), InputError);
  EXPECT_EQ(ReplayRing<TypeParam>(this->space, 1, 4, 3).capacity(), 12u);  // least_slots
}

TEST(Reward, GrowthLessThePenaltyOnTheExposureHeld) {
  EXPECT_FLOAT_EQ(bar_reward({100, 0}, .01f, .5f), 1.0f);
  EXPECT_FLOAT_EQ(bar_reward({100, .4f}, .01f, -.5f), .9f);
}

/// What the replay must hold, from the whole history of every account.
struct Model {
  int n, envs, slots;
  std::vector<std::vector<ReplayRow>> history;  ///< [time][account]
  std::map<std::uint32_t, std::uint32_t> leaves;

  bool ended(int t, int e) const { return (history[t][e].flags & ReplayRow::ended) != 0; }
  /// Bars of the window of row (t, e), 0 while it is open.
  int window(int t, int e) const {
    for (int k = 1; k <= n && t + k <= static_cast<int>(history.size()); ++k) {
      if (k == n || ended(t + k - 1, e)) return k;
    }
    return 0;
  }
  std::uint32_t index(int t, int e) const { return static_cast<std::uint32_t>(t % slots * envs + e); }
  int oldest() const { return std::max(0, static_cast<int>(history.size()) - slots); }

  void add(const std::vector<ReplayRow>& rows, std::uint32_t new_leaf) {
    std::map<std::uint32_t, std::uint32_t> before = std::move(leaves);
    leaves.clear();
    history.push_back(rows);
    const int now = static_cast<int>(history.size()) - 1;
    for (int t = oldest(); t <= now; ++t) {
      for (int e = 0; e < envs; ++e) {
        if (window(t, e) == 0) continue;
        const auto old = before.find(index(t, e));
        leaves[index(t, e)] = t < now && old != before.end() ? old->second : new_leaf;
      }
    }
  }
};

TYPED_TEST(NStepTest, LeavesAndReturnsEqualThoseOfTheWholeHistory) {
  EXPECT_TRUE(rc::check("replay against history", [&] {
    Model m;
    m.n = *rc::gen::inRange(1, 6);
    m.envs = *rc::gen::element(1, 1, 2, 3, 7);
    const int wanted = *rc::gen::inRange(1, 40);
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const auto end_share = *rc::gen::element(0u, 2u, 4u, 12u);  // ends in 16 bars
    const ReplayRing<TypeParam> ring(this->space, wanted, m.envs, m.n);
    m.slots = ring.slots;
    RC_ASSERT(m.slots >= m.n && m.slots * m.envs >= wanted);
    const GatherRules rules = this->rules(m.n, 0.9f);
    std::vector<Bars> accounts(m.envs);
    std::uint32_t new_leaf = 1u << 20;
    const int times = 3 * m.slots + 5;
    SampleProblem<TypeParam> p(m.slots * m.envs, 8);
    for (int t = 0; t < times; ++t) {
      std::vector<ReplayRow> rows;
      for (int e = 0; e < m.envs; ++e) {
        const auto w = random_words({seed, 0}, Purpose::test, t, e);
        const std::uint8_t flags =
            w[0] % 16 >= end_share ? std::uint8_t(0) : (w[1] % 2 ? ReplayRow::terminal : ReplayRow::truncated);
        rows.push_back(accounts[e].next(static_cast<float>(w[2] % 1000) * 0.001f - 0.5f, flags));
      }
      const bool refresh = random_words({seed, 1}, Purpose::test, t, 0)[0] % 3 == 0;
      if (refresh) {
        refresh_new_priority(this->space, ring);
        new_leaf = 1u << 20;
        if (!m.leaves.empty()) {
          new_leaf = 0;
          for (const auto& [row, leaf] : m.leaves) new_leaf = std::max(new_leaf, leaf);
        }
      }
      add_slot(this->space, ring, m.n, rows);
      m.add(rows, new_leaf);

      const TreeCopy tree(this->space, ring.tree);
      RC_ASSERT(tree.fault().empty());
      for (std::uint32_t i = 0; i < tree.leaves.size(); ++i) {
        const auto expected = m.leaves.find(i);
        RC_ASSERT(tree.leaves[i] == (expected == m.leaves.end() ? 0u : expected->second));
      }
      if (m.leaves.empty()) continue;

      // Gather every row with a leaf; give some of them another priority.
      std::vector<std::uint32_t> chosen;
      for (const auto& [row, leaf] : m.leaves) chosen.push_back(row);
      const std::size_t valid = chosen.size();
      chosen.resize(m.slots * m.envs, chosen[0]);
      p.choose(ring, chosen);
      p.collect_batch(ring, this->table, rules);
      const auto rewards = to_host(this->space, p.rewards), discounts = to_host(this->space, p.discounts);
      const auto states = to_host(this->space, p.states);
      for (int s = m.oldest(); s <= t; ++s) {
        for (int e = 0; e < m.envs; ++e) {
          const auto at = std::lower_bound(chosen.begin(), chosen.begin() + valid, m.index(s, e)) - chosen.begin();
          const int k = m.window(s, e);
          RC_ASSERT((k > 0) == (at < static_cast<std::ptrdiff_t>(valid) && chosen[at] == m.index(s, e)));
          if (k == 0) continue;
          double sum = 0, discount = 1;
          for (int j = 0; j < k; ++j, discount *= 0.9f) {
            const ReplayRow& r = m.history[s + j][e];
            sum += discount * (static_cast<double>(r.after.log_growth) - r.before.log_growth);
          }
          const ReplayRow& last = m.history[s + k - 1][e];
          RC_ASSERT(std::abs(rewards[at] - sum) < 1e-5);
          RC_ASSERT(std::abs(discounts[at] - (last.flags & ReplayRow::terminal ? 0.0 : discount)) < 1e-6);
          RC_ASSERT(states[at * 8] == static_cast<float>(m.history[s][e].bar));
          RC_ASSERT(states[(chosen.size() + at) * 8] == static_cast<float>(last.bar + 1));
        }
      }
      if (t % 4 == 1) {
        std::vector<float> deltas(chosen.size());
        for (std::size_t i = 0; i < chosen.size(); ++i) {
          deltas[i] =
              static_cast<float>(1 + random_words({seed, 2}, Purpose::test, t, static_cast<std::uint32_t>(i))[0] % 50);
          m.leaves[chosen[i]] = static_cast<std::uint32_t>(deltas[i]) << 20;  // the last one counts
        }
        p.prioritise(ring, {1.0, 0.0}, deltas);
      }
    }
  }));
}

}  // namespace
}  // namespace vulpes::kernels::test
