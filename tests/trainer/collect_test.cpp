// One bar of collection, computed again on the host: greedy actions in double, account, row, next episode, next state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "training_parts.hpp"
#include "vulpes/kernels/formulas/account_state.hpp"
#include "vulpes/kernels/formulas/goal.hpp"

namespace vulpes::trainer {
namespace {

using test::to_host;

/// Q of all actions for one state, in double, straight from the definition.
std::vector<double> action_values(const kernels::Network& net, const float* parameters, const float* state, double vmin,
                                  double vmax) {
  const auto linear = [&](int weight, const std::vector<double>& x, std::size_t bias_at) {
    const TensorSlice& w = net.layout[weight];
    std::vector<double> y(static_cast<std::size_t>(w.rows));
    for (int r = 0; r < w.rows; ++r) {
      y[r] = parameters[bias_at + r];
      for (int c = 0; c < w.columns; ++c)
        y[r] += static_cast<double>(parameters[w.offset + static_cast<std::size_t>(r) * w.columns + c]) * x[c];
    }
    return y;
  };
  const auto relu = [](std::vector<double> y) {
    for (double& v : y) v = std::max(v, 0.0);
    return y;
  };
  std::vector<double> h(state, state + net.shape.state);
  for (int l = 0; l < 2; ++l) h = relu(linear(net.trunk_weight[l], h, net.layout[net.trunk_bias[l]].offset));
  for (int l = 0; l < net.shape.blocks; ++l) {
    const std::vector<double> more = relu(linear(net.block_weight[l], h, net.layout[net.block_bias[l]].offset));
    for (std::size_t i = 0; i < h.size(); ++i) h[i] += more[i];
  }
  std::vector<std::vector<double>> logits;
  for (int head = 0; head < kernels::heads; ++head) {
    const auto hidden =
        relu(linear(net.hidden_weight[head], h,
                    net.layout[net.hidden_bias].offset + static_cast<std::size_t>(head) * net.shape.head_hidden));
    logits.push_back(linear(net.output_weight[head], hidden,
                            net.layout[net.output_bias].offset + static_cast<std::size_t>(net.head_first_logit(head))));
  }
  const int atoms = net.shape.atoms;
  std::vector<double> q;
  for (int d = 0; d < kernels::branches; ++d) {
    const int actions = kernels::actions_of(d);
    for (int a = 0; a < actions; ++a) {
      double sum = 0, weighted = 0;
      for (int z = 0; z < atoms; ++z) {
        double mean = 0;
        for (int b = 0; b < actions; ++b) mean += logits[d + 1][b * atoms + z] / actions;
        const double p = std::exp(logits[0][z] + logits[d + 1][a * atoms + z] - mean);
        sum += p;
        weighted += p * (vmin + (vmax - vmin) * z / (atoms - 1));
      }
      q.push_back(weighted / sum);
    }
  }
  return q;
}

template <class Space>
struct Collect : testing::Test {};
TYPED_TEST_SUITE(Collect, test::EachSpace);

/// Runs `bars` bars and computes each again. Returns the exposure actions chosen.
template <class Space>
std::set<int> check_bars(test::TrainingParts<Space>& parts, int bars, bool greedy) {
  const auto& config = parts.config;
  const int envs = parts.replay.ring.envs, columns = parts.data.features.columns;
  const market::AccountRules rules = parts.arguments.rules;
  const std::size_t range_end = parts.data.folds[0].train.end;
  std::set<int> exposures;
  int clear = 0, ended = 0;
  for (int bar = 0; bar < bars; ++bar) {
    const auto before = to_host(parts.collect_buffers.environments);
    std::vector<kernels::Environment> old(before.data(), before.data() + envs);
    const auto old_states = to_host(parts.collect_buffers.activations.input);
    std::vector<float> seen(old_states.data(),
                            old_states.data() + static_cast<std::size_t>(envs) * parts.arguments.shape.state);
    const auto parameters = to_host(parts.learner->buffers.parameters);
    const std::uint64_t slot = to_host(parts.replay.ring.cursor)(0);
    parts.collect_bar();
    parts.space.fence("vulpes::test::collect");
    const auto now = to_host(parts.collect_buffers.environments);
    const auto states = to_host(parts.collect_buffers.activations.input);
    const auto rows = to_host(parts.replay.ring.rows);
    EXPECT_EQ(to_host(parts.replay.ring.cursor)(0), slot + 1);

    for (int i = 0; i < envs; ++i) {
      SCOPED_TRACE("bar-step " + std::to_string(bar) + ", account " + std::to_string(i));
      const kernels::ReplayRow& row = rows(parts.replay.ring.view.row(slot, static_cast<std::uint32_t>(i)));
      const kernels::Environment& e = old[i];
      EXPECT_EQ(row.bar, e.bar);
      EXPECT_EQ(row.episode_offset, e.offset);
      EXPECT_EQ(row.goal, e.goal);
      for (int d = 0; d < kernels::branches; ++d) EXPECT_LT(row.action[d], kernels::actions_of(d));
      exposures.insert(row.action[0]);
      if (greedy) {
        const auto q = action_values(
            parts.learner->network, parameters.data(), &seen[static_cast<std::size_t>(i) * parts.arguments.shape.state],
            parts.arguments.support.vmin,
            parts.rules.support.vmin + parts.rules.support.spacing * (config.network.atoms - 1));
        for (int d = 0; d < kernels::branches; ++d) {
          const auto first = q.begin() + kernels::first_action(d);
          std::vector<double> sorted(first, first + kernels::actions_of(d));
          const double chosen = sorted[row.action[d]];
          std::sort(sorted.rbegin(), sorted.rend());
          EXPECT_NEAR(chosen, sorted[0], 1e-5) << "branch " << d << " is not greedy";
          clear += sorted[0] - sorted[1] > 1e-4;
        }
      }
      // The account's own rules, from its state before.
      market::Account account = e.account;
      const market::Bar &decided = parts.data.account_bars[e.bar], &next = parts.data.account_bars[e.bar + 1];
      EXPECT_NEAR(row.before.exposure, market::exposure(account, decided.close), 1e-6);
      EXPECT_NEAR(row.before.unrealised, market::unrealised_return(account, decided.close), 1e-6);
      EXPECT_NEAR(row.before.drawdown, market::drawdown(account), 1e-6);
      EXPECT_NEAR(row.before.log_growth, market::log_growth(account), 1e-6);
      EXPECT_EQ(row.bars_held_before, account.bars_held);
      const auto outcome =
          market::advance(account, rules, {row.action[0], row.action[1], row.action[2]}, decided, next);
      EXPECT_NEAR(row.after.exposure, market::exposure(account, next.close), 1e-6);
      EXPECT_NEAR(row.after.unrealised, market::unrealised_return(account, next.close), 1e-6);
      EXPECT_NEAR(row.after.drawdown, market::drawdown(account), 1e-6);
      EXPECT_NEAR(row.after.log_growth, market::log_growth(account), 1e-6);
      EXPECT_EQ(row.bars_held_after, account.bars_held);
      const bool truncated = !outcome.ruined && e.bar + 1 >= e.end;
      EXPECT_EQ(row.flags, outcome.ruined ? kernels::ReplayRow::terminal
                           : truncated    ? kernels::ReplayRow::truncated
                                          : 0);

      const kernels::Environment& n = now(i);
      if (row.flags != 0) {
        ++ended;
        EXPECT_EQ(n.episodes, e.episodes + 1);
        EXPECT_EQ(n.offset, 0u);
        EXPECT_EQ(n.account.equity, config.account.initial_equity);
        EXPECT_EQ(n.account.units, 0.0);
        const bool allowed =
            std::any_of(parts.starts.begin(), parts.starts.end(),
                        [&](const kernels::StartInterval& s) { return n.bar >= s.begin && n.bar < s.begin + s.count; });
        EXPECT_TRUE(allowed) << "an episode starts at bar " << n.bar;
        EXPECT_GT(n.end, n.bar);
        EXPECT_EQ(n.end, std::min<std::uint32_t>(n.bar + static_cast<std::uint32_t>(config.collect.window),
                                                 static_cast<std::uint32_t>(range_end) - 1));
      } else {
        EXPECT_EQ(n.bar, e.bar + 1);
        EXPECT_EQ(n.offset, e.offset + 1);
        EXPECT_EQ(n.end, e.end);
        EXPECT_EQ(n.episodes, e.episodes);
        EXPECT_NEAR(n.account.equity, account.equity, 1e-9 * account.equity);
        EXPECT_NEAR(n.account.units, account.units, 1e-9 * std::abs(account.units));
      }
      const bool goals = config.reward.goal_bonus != 0 || config.hindsight.share != 0;
      const auto& wish = config.goal;
      const double u = uniform_float(
          random_words(parts.key, Purpose::episode_goal, n.episodes - 1, static_cast<std::uint32_t>(i))[0]);
      EXPECT_NEAR(n.goal, goals ? wish.growth + wish.spread * (2 * u - 1) : 0.0, 1e-6);
      const double gap = goals ? std::clamp(n.goal - market::log_growth(n.account), -wish.clip, wish.clip) : 0.0;
      // The next state: features of the next bar, the account's inputs, padding.
      const float* state = &states(i, 0);
      for (int j = 0; j < columns; ++j)
        EXPECT_EQ(state[j], parts.features[static_cast<std::size_t>(n.bar) * columns + j]);
      float inputs[kernels::account_input_count];
      const double close = parts.data.account_bars[n.bar].close;
      kernels::account_inputs(static_cast<float>(market::exposure(n.account, close)),
                              static_cast<float>(market::unrealised_return(n.account, close)), n.account.bars_held,
                              static_cast<float>(market::drawdown(n.account)), static_cast<float>(gap),
                              static_cast<int>(config.collect.window), inputs);
      for (int j = 0; j < kernels::account_input_count; ++j) EXPECT_NEAR(state[columns + j], inputs[j], 1e-5);
      for (int j = columns + kernels::account_input_count; j < parts.arguments.shape.state; ++j)
        EXPECT_EQ(state[j], 0.0f);
    }
  }
  EXPECT_GE(ended, envs) << "hardly an episode ended: the test shows little";
  EXPECT_TRUE(!greedy || clear > bars * envs) << "near ties only: the test shows little";
  return exposures;
}

TYPED_TEST(Collect, RandomRowsEqualTheHosts) {
  test::TrainingParts<TypeParam> parts(TypeParam{});
  EXPECT_EQ(check_bars(parts, 30, false).size(), 9u);
}

TYPED_TEST(Collect, WithoutExplorationActionsAreGreedy) {
  test::TrainingParts<TypeParam> parts(TypeParam{});
  parts.arguments.epsilon = Schedule::constant(0.0);
  EXPECT_GE(check_bars(parts, 30, true).size(), 2u);
}

TYPED_TEST(Collect, SoftmaxAtALowTemperatureIsGreedy) {
  test::TrainingParts<TypeParam> parts(TypeParam{});
  parts.arguments.exploration = kernels::Exploration::softmax;
  parts.arguments.temperature = 1e-6f;
  check_bars(parts, 15, true);
}

TYPED_TEST(Collect, RuinIsTerminal) {
  io::Config config = test::small_config();
  config.account.ruin_fraction = 0.99;
  config.collect.window = 60;
  test::TrainingParts<TypeParam> parts(TypeParam{}, config);
  check_bars(parts, 40, false);
  const auto rows = to_host(parts.replay.ring.rows);
  int ruined = 0;
  for (int r = 0; r < 40 * parts.replay.ring.envs; ++r) {
    if (rows(r).flags != kernels::ReplayRow::terminal) continue;
    ++ruined;
    EXPECT_NEAR(rows(r).after.log_growth, std::log(0.99), 1e-6);
    EXPECT_EQ(rows(r).after.exposure, 0.0f);
  }
  EXPECT_GT(ruined, 10);
}

io::Config config_with_goals() {
  io::Config config = test::small_config();
  config.reward.goal_bonus = 1;
  config.goal = {0.01, 0.005, 0.02};  // some gaps are clipped
  return config;
}

TYPED_TEST(Collect, EveryEpisodeHasAGoalOfItsOwn) {
  test::TrainingParts<TypeParam> parts(TypeParam{}, config_with_goals());
  check_bars(parts, 30, false);
  const auto rows = to_host(parts.replay.ring.rows);
  std::set<float> goals;
  for (int r = 0; r < 30 * parts.replay.ring.envs; ++r) goals.insert(rows(r).goal);
  EXPECT_GE(goals.size(), 2u * static_cast<std::size_t>(parts.replay.ring.envs));
  EXPECT_GE(*goals.begin(), 0.005f);
  EXPECT_LE(*goals.rbegin(), 0.015f);
}

// A state is the same to the bit when it is acted on, when it is gathered, and after a checkpoint was loaded.
TYPED_TEST(Collect, StatesOfTheReplayEqualThoseThatWereActedOn) {
  for (const bool goals : {false, true}) {
    test::TrainingParts<TypeParam> parts(TypeParam{}, goals ? config_with_goals() : test::small_config());
    const int envs = parts.replay.ring.envs, width = parts.arguments.shape.state;
    const kernels::Draws<TypeParam> draws(parts.space, envs);
    const auto states = allocate<Matrix<float, TypeParam>>(parts.space, "vulpes::test::states", 2 * envs, width);
    const auto actions = allocate<Matrix<std::uint8_t, TypeParam>>(parts.space, "vulpes::test::actions", 3, envs);
    const auto numbers = allocate<Matrix<float, TypeParam>>(parts.space, "vulpes::test::numbers", 3, envs);
    kernels::GatherRules rules = parts.rules.gather;
    rules.n_step = 1;
    int inside = 0, distinct_gaps = 0;
    for (int bar = 0; bar < 30; ++bar) {
      const auto copy = [&] {
        const auto view = to_host(parts.collect_buffers.activations.input);
        return std::vector<float>(view.data(), view.data() + static_cast<std::size_t>(envs) * width);
      };
      const std::vector<float> before = copy();
      const std::uint64_t slot = to_host(parts.replay.ring.cursor)(0);
      parts.collect_bar();
      parts.space.fence("vulpes::test::collect");
      const std::vector<float> after = copy();
      kernels::write_states(parts.space, parts.arguments, parts.collect_buffers);
      parts.space.fence("vulpes::test::write_states");
      EXPECT_EQ(copy(), after);

      const auto rows = Kokkos::create_mirror_view(draws.rows);
      const auto writes = Kokkos::create_mirror_view(draws.writes);
      for (int i = 0; i < envs; ++i) {
        rows(i) = parts.replay.ring.view.row(slot, static_cast<std::uint32_t>(i));
        writes(i) = slot;
      }
      Kokkos::deep_copy(draws.rows, rows);
      Kokkos::deep_copy(draws.writes, writes);
      float* n = numbers.data();
      kernels::gather<TypeParam>(
          parts.space, parts.replay.ring, parts.table, rules, parts.arguments.iteration, draws,
          {states, actions, VectorRef<float, TypeParam>(n, envs), VectorRef<float, TypeParam>(n + envs, envs),
           VectorRef<float, TypeParam>(n + 2 * envs, envs)});
      parts.space.fence("vulpes::test::gather");
      const auto gathered = to_host(states);
      const auto ring = to_host(parts.replay.ring.rows);
      const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(float);
      for (int i = 0; i < envs; ++i) {
        EXPECT_EQ(std::memcmp(&gathered(i, 0), &before[static_cast<std::size_t>(i) * width], bytes), 0) << bar;
        const int gap = parts.data.features.columns + kernels::account_input_count - 1;
        distinct_gaps += gathered(i, gap) != 0 && gathered(i, gap) != gathered(envs + i, gap);
        if (ring(rows(i)).flags != 0) continue;  // the account is in its next episode
        ++inside;
        EXPECT_EQ(std::memcmp(&gathered(envs + i, 0), &after[static_cast<std::size_t>(i) * width], bytes), 0) << bar;
      }
    }
    EXPECT_GT(inside, 20 * envs);
    EXPECT_EQ(distinct_gaps > 10 * envs, goals);
    EXPECT_EQ(distinct_gaps == 0, !goals);
  }
}

// The first windows are shortened at random, so that accounts do not reset together.
TYPED_TEST(Collect, FirstEpisodesHaveDifferentLengths) {
  io::Config config = test::small_config();
  config.collect.envs = 200;
  config.replay.rows = 8000;
  const test::TrainingParts<TypeParam> parts(TypeParam{}, config);
  const auto environments = to_host(parts.collect_buffers.environments);
  std::set<std::uint32_t> lengths, starts;
  for (std::size_t i = 0; i < environments.extent(0); ++i) {
    const auto& e = environments(i);
    lengths.insert(e.end - e.bar);
    starts.insert(e.bar);
    EXPECT_LE(e.end - e.bar, 12u);
    EXPECT_GE(e.end - e.bar, 1u);
    EXPECT_GE(e.bar, parts.data.folds[0].train.begin);
    EXPECT_LT(e.end, parts.data.folds[0].train.end);
  }
  EXPECT_EQ(lengths.size(), 12u);
  EXPECT_GT(starts.size(), 100u);
}

}  // namespace
}  // namespace vulpes::trainer
