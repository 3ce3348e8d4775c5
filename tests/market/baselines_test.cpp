#include "vulpes/market/baselines.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "vulpes/core/random.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::market {
namespace {

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

TEST(Baselines, BuyAndHoldIsThePriceLessOneEntry) {
  const Bars b = generate_synthetic({}, {1, 0}, 0, 1000);
  const std::vector<double> g = run_baseline(Baseline::buy_and_hold, b, {}, 100, 1000);
  EXPECT_EQ(g.size(), 899u);
  const double entry = b.open[101] * 1.0002, units = 1.0 / b.close[100];
  EXPECT_NEAR(std::exp(sum(g)), 1.0 - units * entry * 1.001 + units * b.close[999], 1e-10);
}

TEST(Baselines, FlatNeverMoves) {
  const Bars b = generate_synthetic({}, {1, 0}, 0, 300);
  for (const double g : run_baseline(Baseline::flat, b, {}, 0, 300)) ASSERT_EQ(g, 0.0);
}

TEST(Baselines, ZScoreTradesAgainstTheMove) {
  Bars b;
  for (int t = 0; t < 60; ++t) {
    const double price = t == 30 ? 110.0 : 100.0 + 0.1 * (t % 2);
    b.time.push_back(t);
    for (auto* v : {&b.open, &b.high, &b.low, &b.close}) v->push_back(price);
    b.volume.push_back(0);
    b.segment.push_back(0);
  }
  io::AccountConfig free;
  free.taker_fee_bp = free.half_spread_bp = 0;
  b.open[31] = b.high[31] = 110;  // still there when the short of bar 30 fills
  const std::vector<double> g = run_baseline(Baseline::z_score, b, free, 0, 60);
  EXPECT_NEAR(g[30], std::log(1 + (110 - b.close[31]) / 110), 1e-12);
  EXPECT_EQ(sum({g.begin(), g.begin() + 30}), 0.0);
  EXPECT_EQ(sum({g.begin() + 32, g.end()}), 0.0);  // out at the next open: the price crossed the mean
}

TEST(Baselines, ZScoreSeesBarsBeforeItsBegin) {
  const Bars b = generate_synthetic({}, {2, 0}, 0, 400);
  const std::vector<double> late = run_baseline(Baseline::z_score, b, {}, 200, 400);
  EXPECT_NE(sum({late.begin(), late.begin() + 19}), 0.0);
  Bars fresh = b;
  std::fill(fresh.segment.begin() + 200, fresh.segment.end(), 1);
  const std::vector<double> cold = run_baseline(Baseline::z_score, fresh, {}, 200, 400);
  EXPECT_EQ(sum({cold.begin(), cold.begin() + 19}), 0.0);
}

TEST(GrowthRatio, ScalesAndHasTheErrorOfRepeatedSamples) {
  std::vector<double> reference(65536), half(65536);
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const NormalPair z = normal_pair(random_words({9, 0}, Purpose::test, i, 0));
    reference[i] = 1.0 + 5.0 * z.first;
    half[i] = 0.5 * reference[i];
  }
  const auto exact = growth_ratio(half, reference);
  ASSERT_TRUE(exact);
  EXPECT_NEAR(exact->ratio, 0.5, 1e-12);
  EXPECT_NEAR(exact->standard_error, 0.0, 1e-9);

  // Many samples: the spread of the ratio equals the estimated error.
  const int samples = 200;
  double mean = 0, squares = 0, error = 0;
  for (int s = 0; s < samples; ++s) {
    std::vector<double> a(8192), r(8192);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const NormalPair z = normal_pair(random_words({10, 0}, Purpose::test, i, static_cast<std::uint32_t>(s)));
      r[i] = 1.0 + 5.0 * z.first;
      a[i] = 0.9 * r[i] + 2.0 * z.second;
    }
    const auto e = growth_ratio(a, r);
    mean += e->ratio / samples;
    squares += e->ratio * e->ratio / samples;
    error += e->standard_error / samples;
  }
  EXPECT_NEAR(error / std::sqrt(squares - mean * mean), 1.0, 0.2);
  EXPECT_NEAR(mean, 0.9, 0.01);
}

TEST(GrowthRatio, IsAbsentWhereItMeansNothing) {
  const std::vector<double> zero(4096, 0.0), one(4096, 1.0), few(512, 1.0);
  EXPECT_FALSE(growth_ratio(one, zero));
  EXPECT_FALSE(growth_ratio(few, few));
  EXPECT_TRUE(growth_ratio(zero, one));
}

}  // namespace
}  // namespace vulpes::market
