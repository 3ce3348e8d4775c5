#include "vulpes/market/synthetic.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace vulpes::market {
namespace {

TEST(Synthetic, PassesTheChecksOfRealBars) {
  const Bars b = generate_synthetic({}, {1, 0}, 0, 2000);
  EXPECT_NO_THROW(check_bars(b, "synthetic", {}));
  EXPECT_EQ(b.time.front(), 1577836800000000000);
  EXPECT_EQ(b.time[1] - b.time[0], 3600000000000);
  EXPECT_DOUBLE_EQ(bars_a_year(b), 24 * 365);
  Bars again = b;
  EXPECT_EQ(assign_segments(again).gaps, 0);
}

TEST(Synthetic, PrefixesAgreeAndSeedsAndPathsDiffer) {
  const Bars a = generate_synthetic({}, {1, 0}, 0, 300), longer = generate_synthetic({}, {1, 0}, 0, 900);
  EXPECT_EQ(a.close, longer.slice(0, 300).close);
  EXPECT_EQ(a.volume, longer.slice(0, 300).volume);
  EXPECT_NE(a.close, generate_synthetic({}, {2, 0}, 0, 300).close);
  EXPECT_NE(a.close, generate_synthetic({}, {1, 1}, 0, 300).close);
  EXPECT_NE(a.close, generate_synthetic({}, {1, 0}, 1, 300).close);
}

TEST(Synthetic, ComponentIsTheStationaryAr1) {
  const io::SyntheticConfig c;
  std::vector<double> x;
  const std::size_t n = 200000;
  const Bars b = generate_synthetic(c, {3, 0}, 0, n, &x);
  double square = 0, product = 0, walk = 0, innovation = 0;
  for (std::size_t t = 1; t < n; ++t) {
    square += x[t] * x[t];
    product += x[t] * x[t - 1];
    const double w = std::log(b.close[t] / b.close[t - 1]) - (x[t] - x[t - 1]);
    walk += w * w;
    innovation += w * (x[t] - c.phi * x[t - 1]);
  }
  EXPECT_NEAR(std::sqrt(square / n), 0.008, 0.0002);
  EXPECT_NEAR(product / square, 0.85, 0.005);
  EXPECT_NEAR(std::sqrt(walk / n), 0.0003, 2e-6);
  EXPECT_NEAR(innovation / std::sqrt(walk * square), 0.0, 0.01);  // independent
}

TEST(Synthetic, OpenIsOneSubStepAfterTheClose) {
  const io::SyntheticConfig c;
  std::vector<double> x;
  const std::size_t n = 100000;
  const Bars b = generate_synthetic(c, {4, 0}, 0, n, &x);
  double gap = 0;
  for (std::size_t t = 1; t < n; ++t) gap += std::pow(std::log(b.open[t] / b.close[t - 1]), 2) / n;
  const double phi = std::pow(0.85, 1.0 / 16);
  const double expected = 2 * (1 - phi) * 0.008 * 0.008 + 0.0003 * 0.0003 / 16;
  EXPECT_NEAR(gap / expected, 1.0, 0.03);
}

TEST(Synthetic, VolumeSaysNothingAboutPrices) {
  const std::size_t n = 100000;
  const Bars b = generate_synthetic({}, {6, 0}, 0, n);
  double vr = 0, vv = 0, rr = 0, mean = 0;
  for (const double v : b.volume) mean += std::log(v) / n;
  for (std::size_t t = 0; t + 1 < n; ++t) {
    const double v = std::log(b.volume[t]) - mean, r = std::log(b.close[t + 1] / b.close[t]);
    vr += v * r, vv += v * v, rr += r * r;
  }
  EXPECT_NEAR(vr / std::sqrt(vv * rr), 0.0, 0.015);
  EXPECT_GT(vv / n, 0.1);
}

}  // namespace
}  // namespace vulpes::market
