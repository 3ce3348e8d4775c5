#include "vulpes/market/optimum.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>

#include "vulpes/core/errors.hpp"
#include "vulpes/market/baselines.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::market {
namespace {

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

const ReferencePolicy& reference() {
  static const ReferencePolicy policy{io::SyntheticConfig{}, io::AccountConfig{}};
  return policy;
}

/// The general two-state Kalman filter on (walk, component), iterated from a wide prior.
TEST(ComponentFilter, SteadyStateAgreesWithTheTwoStateFilter) {
  const io::SyntheticConfig c;
  double p[2][2] = {{100.0, 0.0}, {0.0, c.component_sd * c.component_sd}}, gain = 0, variance = 0;
  const double q[2] = {c.walk_sd * c.walk_sd, c.component_sd * c.component_sd * (1 - c.phi * c.phi)},
               f[2] = {1.0, c.phi};
  for (int i = 0; i < 5000; ++i) {
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) p[a][b] = f[a] * f[b] * p[a][b] + (a == b ? q[a] : 0.0);
    }
    const double row[2] = {p[0][0] + p[0][1], p[1][0] + p[1][1]}, s = row[0] + row[1];
    gain = row[1] / s;
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) p[a][b] -= row[a] * row[b] / s;
    }
    variance = p[1][1];
  }
  const ComponentFilter steady = ComponentFilter::steady_state(c);
  EXPECT_NEAR(steady.gain, gain, 1e-6);
  EXPECT_NEAR(steady.variance / variance, 1.0, 1e-5);
}

TEST(ComponentFilter, ErrorOnBarsHasTheStatedVariance) {
  const io::SyntheticConfig c;
  const ComponentFilter f = ComponentFilter::steady_state(c);
  std::vector<double> x;
  const std::size_t n = 200000;
  const Bars b = generate_synthetic(c, {12, 0}, 0, n, &x);
  double m = 0, error = 0, innovation = 0;
  for (std::size_t t = 1; t < n; ++t) {
    const double r = std::log(b.close[t] / b.close[t - 1]);
    const double surprise = r - (c.phi - 1) * m;
    m = f.next(m, r);
    if (t < 512) continue;
    error += (x[t] - m) * (x[t] - m);
    innovation += surprise * surprise;
  }
  EXPECT_NEAR(error / (n - 512) / f.variance, 1.0, 0.1);  // errors stay for about 95 bars
  EXPECT_NEAR(innovation / (n - 512) / f.innovation_variance, 1.0, 0.02);
}

TEST(Optimum, SimulatedGrowthIsWithinOnePercentOfThePrediction) {
  const ReferencePolicy& policy = reference();
  std::vector<double> growth;
  for (std::uint32_t path = 0; path < 4; ++path) {  // 1,048,576 bars: standard error 0.4 %
    const Bars b = generate_synthetic({}, {77, 0}, path, 512 + 262144);
    const std::vector<double> g = policy.run(b, 512, b.size());
    ASSERT_EQ(g.size(), 262143u);
    growth.insert(growth.end(), g.begin(), g.end());
  }
  RecordProperty("predicted_bp", std::to_string(policy.predicted_growth() * 1e4));
  RecordProperty("simulated_bp", std::to_string(mean(growth) * 1e4));
  EXPECT_NEAR(mean(growth) / policy.predicted_growth(), 1.0, 0.01);
}

TEST(Optimum, DrawsAndGridAreFineEnough) {
  EXPECT_NEAR(ReferencePolicy({}, {}, {}, 2).predicted_growth() / reference().predicted_growth(), 1.0, 0.005);
  io::SyntheticConfig coarse;
  coarse.optimum_points = 41;
  EXPECT_NEAR(ReferencePolicy(coarse, {}).predicted_growth() / reference().predicted_growth(), 1.0, 0.005);
}

TEST(Optimum, PoliciesRankAsTheyMust) {
  ReferenceOptions full, market, myopic;
  full.information = ReferenceOptions::Information::component;
  market.market_orders_only = true;
  myopic.myopic = true;
  const ReferencePolicy informed({}, {}, full), taker({}, {}, market), greedy({}, {}, myopic);
  EXPECT_GT(informed.predicted_growth(), 1.04 * reference().predicted_growth());
  EXPECT_LT(taker.predicted_growth(), 0.96 * reference().predicted_growth());
  EXPECT_THROW(greedy.predicted_growth(), std::logic_error);

  std::vector<double> x;
  const Bars b = generate_synthetic({}, {5, 0}, 3, 512 + 131072, &x);
  const auto base = reference().run(b, 512, b.size());
  const auto above = growth_ratio(informed.run(b, 512, b.size(), &x), base);
  ASSERT_TRUE(above);
  EXPECT_NEAR(above->ratio, informed.predicted_growth() / reference().predicted_growth(), 4 * above->standard_error);
  const auto below = growth_ratio(taker.run(b, 512, b.size()), base);
  EXPECT_NEAR(below->ratio, taker.predicted_growth() / reference().predicted_growth(), 4 * below->standard_error);
  for (const auto& g : {greedy.run(b, 512, b.size()), run_baseline(Baseline::z_score, b, {}, 512, b.size()),
                        run_baseline(Baseline::buy_and_hold, b, {}, 512, b.size())}) {
    EXPECT_LT(mean(g), 0.93 * mean(base));
  }
  EXPECT_THROW(informed.run(b, 512, b.size()), InputError);
}

TEST(Optimum, StaysFlatWhereNothingCanBeGained) {
  io::SyntheticConfig market, walk, light;
  light.optimum_draws = market.optimum_draws = walk.optimum_draws = 4096;
  light.optimum_points = market.optimum_points = walk.optimum_points = 21;
  io::AccountConfig dear;
  dear.taker_fee_bp = dear.maker_fee_bp = 500;
  walk.component_sd = 0;
  for (const auto& [m, a] : {std::pair{market, dear}, std::pair{walk, io::AccountConfig{}}}) {
    const ReferencePolicy idle(m, a);
    EXPECT_NEAR(idle.predicted_growth(), 0.0, 1e-8);
    const Bars b = generate_synthetic(m, {5, 0}, 0, 3000);
    for (const double g : idle.run(b, 512, b.size())) ASSERT_EQ(g, 0.0);
  }
  light.phi = 0;  // white noise: all of it reverts in one bar
  EXPECT_GT(ReferencePolicy(light, {}).predicted_growth(), reference().predicted_growth());
}

TEST(Optimum, ActionsAreSymmetricAndBangBang) {
  const ReferencePolicy& policy = reference();
  const Action sell = policy.act(0.0, 0.015), buy = policy.act(0.0, -0.015);
  EXPECT_EQ(sell.exposure, 0);
  EXPECT_EQ(buy.exposure, 8);
  EXPECT_EQ(sell.urgency, 0);
  EXPECT_EQ(policy.act(1.0, 0.0).exposure, 8);  // holds through the middle
  EXPECT_EQ(policy.act(-1.0, 0.0).exposure, 0);
}

TEST(Optimum, RunIsCausalAndRestartsAtBegin) {
  const ReferencePolicy& policy = reference();
  Bars b = generate_synthetic({}, {8, 0}, 0, 2000);
  std::vector<double> exposures;
  const auto all = policy.run(b, 512, 2000, nullptr, &exposures);
  EXPECT_EQ(exposures.size(), all.size());
  EXPECT_EQ(exposures.front(), 0.0);
  const auto part = policy.run(b, 512, 1500);
  EXPECT_EQ(part, std::vector<double>(all.begin(), all.begin() + 987));
  for (std::size_t i = 1500; i < 2000; ++i) {
    for (auto* v : {&b.open, &b.high, &b.low, &b.close}) (*v)[i] *= 1.01;
  }
  const auto changed = policy.run(b, 512, 2000);
  EXPECT_EQ(std::vector<double>(changed.begin(), changed.begin() + 987), part);
  EXPECT_TRUE(policy.run(b, 100, 101).empty());
}

}  // namespace
}  // namespace vulpes::market
