#include "vulpes/market/features.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "vulpes/core/errors.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::market {
namespace {

Bars some_bars(std::size_t n, std::uint32_t path = 0) {
  Bars b = generate_synthetic({}, {5, 0}, path, n);
  b.extra.push_back({"funding", std::vector<double>(n)});
  for (std::size_t i = 0; i < n; ++i) b.extra[0].values[i] = std::sin(static_cast<double>(i * i));
  return b;
}

int column_of(const FeatureSet& f, const std::string& name) {
  const auto at = std::find(f.names.begin(), f.names.end(), name);
  EXPECT_NE(at, f.names.end()) << name;
  return static_cast<int>(at - f.names.begin());
}
double value(const FeatureSet& f, std::size_t row, const std::string& name) {
  return f.values[row * static_cast<std::size_t>(f.columns) + static_cast<std::size_t>(column_of(f, name))];
}

TEST(Features, AgreeWithTheirDefinitions) {
  const Bars b = some_bars(600);
  const FeatureSet f = compute_features(b, {});
  EXPECT_EQ(f.rows, 600u);
  EXPECT_EQ(f.names.size(), static_cast<std::size_t>(f.columns));
  EXPECT_EQ(f.groups.size(), f.names.size());
  EXPECT_EQ(f.warm_up, 128);
  const auto c = [&](std::size_t t) { return std::log(b.close[t]); };
  for (const std::size_t t : {128u, 129u, 200u, 255u, 256u, 511u, 599u}) {
    EXPECT_DOUBLE_EQ(value(f, t, "return_128"), c(t) - c(t - 128));
    double squares = 0, mean = 0, range = 0, volume = 0;
    for (std::size_t i = t - 63; i <= t; ++i) {
      squares += (c(i) - c(i - 1)) * (c(i) - c(i - 1)) / 64;
      mean += c(i) / 64;
      volume += b.volume[i] / 64;
    }
    EXPECT_NEAR(value(f, t, "volatility_64"), std::sqrt(squares), 1e-12);
    EXPECT_NEAR(value(f, t, "mean_distance_64"), c(t) - mean, 1e-12);
    double volume_squares = 0;
    for (std::size_t i = t - 63; i <= t; ++i) volume_squares += (b.volume[i] - volume) * (b.volume[i] - volume) / 64;
    EXPECT_NEAR(value(f, t, "volume_z_64"), (b.volume[t] - volume) / std::sqrt(volume_squares), 1e-9);
    for (std::size_t i = t - 15; i <= t; ++i) range += std::log(b.high[i] / b.low[i]) / 16;
    EXPECT_NEAR(value(f, t, "range_16"), range, 1e-12);
    double mean20 = 0, squares20 = 0;
    for (std::size_t i = t - 19; i <= t; ++i) mean20 += c(i) / 20;
    for (std::size_t i = t - 19; i <= t; ++i) squares20 += (c(i) - mean20) * (c(i) - mean20) / 20;
    EXPECT_NEAR(value(f, t, "bollinger_20"), (c(t) - mean20) / (2 * std::sqrt(squares20)), 1e-9);
    EXPECT_DOUBLE_EQ(value(f, t, "funding"), b.extra[0].values[t]);
  }
  // Recursive averages, by their weights.
  const std::size_t t = 500;
  const auto ema = [&](double weight, std::size_t first, auto&& x) {
    double sum = 0, mass = 0;
    for (std::size_t i = first; i <= t; ++i) {
      const double w = std::pow(1 - weight, static_cast<double>(t - i));
      sum += w * x(i);
      mass += w;
    }
    return sum / mass;
  };
  const double gain = ema(1.0 / 14, 1, [&](std::size_t i) { return std::max(b.close[i] - b.close[i - 1], 0.0); });
  const double loss = ema(1.0 / 14, 1, [&](std::size_t i) { return std::max(b.close[i - 1] - b.close[i], 0.0); });
  EXPECT_NEAR(value(f, t, "rsi_14"), 100 - 100 / (1 + gain / loss), 1e-8);
  EXPECT_NEAR(value(f, t, "macd"), ema(2.0 / 13, 0, c) - ema(2.0 / 27, 0, c), 1e-12);
}

TEST(Features, GroupsAndNormalisedFlags) {
  const FeatureSet f = compute_features(some_bars(200), {});
  EXPECT_EQ(f.groups[static_cast<std::size_t>(column_of(f, "return_4"))], "return");
  EXPECT_EQ(f.groups[static_cast<std::size_t>(column_of(f, "macd_histogram"))], "macd");
  EXPECT_EQ(f.groups[static_cast<std::size_t>(column_of(f, "funding"))], "funding");
  for (std::size_t j = 0; j < f.names.size(); ++j) EXPECT_EQ(f.normalised[j], f.groups[j] != "calendar") << f.names[j];
}

TEST(Features, CalendarIsInUtcFromMonday) {
  Bars b = some_bars(3);
  b.time = {1704067200000000000, 1704067200000000000 + 6 * 3600000000000, 1704067200000000000 + 84 * 3600000000000};
  io::FeaturesConfig c;  // 2024-01-01T00:00Z was a Monday
  c.return_horizons = {1};
  c.volatility_windows = c.mean_windows = {};
  c.range_window = c.rsi_window = 1;
  c.volume_window = c.bollinger_window = 2;
  c.macd = {1, 1, 1};
  const FeatureSet f = compute_features(b, c);
  ASSERT_LE(f.warm_up, 2);
  const std::size_t last = 2;  // half a week later, at noon
  EXPECT_NEAR(value(f, last, "week_cos"), -1, 1e-12);
  EXPECT_NEAR(value(f, last, "day_cos"), -1, 1e-12);
  EXPECT_NEAR(value(f, last, "day_sin"), 0, 1e-12);
}

TEST(Features, BarsAfterTChangeNothingUpToT) {
  const std::size_t n = 1500;
  Bars b = some_bars(n);
  std::fill(b.segment.begin() + 700, b.segment.end(), 1);
  const FeatureSet f = compute_features(b, {});
  const auto account = account_bars(b, {});
  const auto width = static_cast<std::size_t>(f.columns);
  for (std::uint32_t trial = 0; trial < 100; ++trial) {
    const std::size_t t = random_words({1, 0}, Purpose::test, trial, 0)[0] % (n - 1);
    Bars changed = b;
    for (std::size_t i = t + 1; i < n; ++i) {
      changed.open[i] *= 10, changed.high[i] *= 11, changed.low[i] *= 9, changed.close[i] *= 10, changed.volume[i] += 7;
      changed.extra[0].values[i] = -1;
    }
    const FeatureSet g = compute_features(changed, {});
    const auto changed_account = account_bars(changed, {});
    for (std::size_t k = 0; k < (t + 1) * width; ++k)
      ASSERT_EQ(f.values[k], g.values[k]) << t << " " << f.names[k % width];
    for (std::size_t i = 0; i <= t; ++i) ASSERT_EQ(account[i].atr, changed_account[i].atr);
    EXPECT_NE(f.values, g.values);  // the changes were seen
  }
}

TEST(Features, ASuffixWithEnoughHistoryGivesTheSameRows) {
  const std::size_t n = 1200, cut = 333;
  const Bars b = some_bars(n);
  const FeatureSet f = compute_features(b, {}), g = compute_features(b.slice(cut, n), {});
  const auto width = static_cast<std::size_t>(f.columns);
  for (std::size_t t = cut + 128; t < n; ++t) {
    for (std::size_t j = 0; j < width; ++j) {
      const bool recursive = f.groups[j] == "rsi" || f.groups[j] == "macd";
      if (recursive && t < cut + 600) continue;  // exponential averages forget slowly
      ASSERT_NEAR(f.values[t * width + j], g.values[(t - cut) * width + j], 1e-9) << f.names[j] << " " << t;
    }
  }
}

TEST(Features, WindowedSumsDoNotDrift) {
  Bars b = some_bars(20000);
  for (std::size_t i = 0; i < 5000; ++i) b.volume[i] = 1e15;  // a running sum would keep the rounding of these
  for (std::size_t i = 5000; i < b.size(); ++i) b.volume[i] = i % 2 == 0 ? 1.0 : 3.0;
  const FeatureSet f = compute_features(b, {});
  EXPECT_NEAR(value(f, 19998, "volume_z_64"), -1.0, 1e-12);
  EXPECT_NEAR(value(f, 19999, "volume_z_64"), 1.0, 1e-12);
}

TEST(Features, NoWindowCrossesASegment) {
  const Bars a = some_bars(400, 1), c = some_bars(400, 2);
  Bars joined = a;
  append_segment(joined, c);
  const FeatureSet f = compute_features(joined, {}), alone = compute_features(c, {});
  const auto width = static_cast<std::size_t>(f.columns);
  for (std::size_t k = 0; k < alone.values.size(); ++k) ASSERT_EQ(f.values[400 * width + k], alone.values[k]);
  for (std::size_t t = 0; t < 800; ++t) EXPECT_EQ(f.usable[t], t % 400 >= 128);
  const auto account = account_bars(joined, {}), account_alone = account_bars(c, {});
  for (std::size_t t = 0; t < 400; ++t) EXPECT_EQ(account[400 + t].atr, account_alone[t].atr);
}

TEST(Features, FlatPricesGiveFiniteValues) {
  Bars b = some_bars(300);
  for (auto* v : {&b.open, &b.high, &b.low, &b.close}) std::fill(v->begin(), v->end(), 123.456);
  std::fill(b.volume.begin(), b.volume.end(), 0.0);
  const FeatureSet f = compute_features(b, {});
  for (const double v : f.values) ASSERT_TRUE(std::isfinite(v));
  EXPECT_EQ(value(f, 299, "rsi_14"), 50.0);
  EXPECT_EQ(value(f, 299, "bollinger_20"), 0.0);
  EXPECT_EQ(value(f, 299, "volume_z_64"), 0.0);
  std::vector<std::string> warnings;
  const Normaliser n = Normaliser::fit(f, 0, 300, 5, &warnings);
  for (const float v : n.apply(f)) ASSERT_TRUE(std::isfinite(v));
  EXPECT_EQ(n.scale[static_cast<std::size_t>(column_of(f, "rsi_14"))], 1.0);
  const bool named = std::any_of(warnings.begin(), warnings.end(),
                                 [](const std::string& w) { return w.find("'rsi_14'") != std::string::npos; });
  EXPECT_TRUE(named);
}

TEST(Normaliser, IsMedianAndInterQuartileRangeOfTheTrainingRange) {
  FeatureSet f;
  f.names = {"x"}, f.groups = {"x"}, f.normalised = {true};
  f.rows = 8, f.columns = 1, f.warm_up = 1;
  f.values = {0, 5, 1, 4, 2, 3, 1000, -1000};
  f.usable = {0, 1, 1, 1, 1, 1, 1, 1};
  const Normaliser n = Normaliser::fit(f, 0, 6, 5, nullptr);  // of 1 ... 5
  EXPECT_DOUBLE_EQ(n.median[0], 3);
  EXPECT_DOUBLE_EQ(n.scale[0], 2);
  const std::vector<float> z = n.apply(f);
  EXPECT_EQ(z, (std::vector<float>{0, 1, -1, 0.5f, -0.5f, 0, 5, -5}));
  EXPECT_THROW(Normaliser::fit(f, 0, 1, 5, nullptr), InputError);
  Normaliser other = n;
  other.median.push_back(0);
  EXPECT_THROW(other.apply(f), InputError);
}

TEST(Normaliser, TestRowsTimesTenLeaveTrainingStatisticsBitEqual) {
  Bars b = some_bars(1000);
  const FeatureSet f = compute_features(b, {});
  for (std::size_t i = 800; i < 1000; ++i) {
    for (auto* v : {&b.open, &b.high, &b.low, &b.close, &b.volume, &b.extra[0].values}) (*v)[i] *= 10;
  }
  const FeatureSet g = compute_features(b, {});
  const Normaliser n = Normaliser::fit(f, 0, 800, 5, nullptr), m = Normaliser::fit(g, 0, 800, 5, nullptr);
  EXPECT_EQ(n.median, m.median);
  EXPECT_EQ(n.scale, m.scale);
}

TEST(Normaliser, ScalesToOrderOneAndClips) {
  const FeatureSet f = compute_features(some_bars(5000), {});
  const Normaliser n = Normaliser::fit(f, 0, 5000, 5, nullptr);
  const std::vector<float> z = n.apply(f);
  const auto width = static_cast<std::size_t>(f.columns);
  for (std::size_t j = 0; j < width; ++j) {
    if (!f.normalised[j]) continue;
    int inner = 0, rows = 0;
    for (std::size_t t = 128; t < 5000; ++t, ++rows) {
      inner += std::fabs(z[t * width + j]) < 1;
      ASSERT_LE(std::fabs(z[t * width + j]), 5.0f);
    }
    EXPECT_GT(inner, rows / 2) << f.names[j];
  }
}

TEST(AccountBars, AtrIsTheDebiasedAverageOfTrueRange) {
  Bars b;
  b.time = {0, 1, 2};
  b.open = {10, 12, 8};
  b.high = {11, 13, 9};
  b.low = {9, 12, 7};
  b.close = {10, 12.5, 8};
  b.volume = {0, 0, 0};
  b.segment = {0, 0, 0};
  io::AccountConfig c;
  c.atr_window = 2;
  const auto a = account_bars(b, c);
  EXPECT_DOUBLE_EQ(a[0].atr, 2);                                           // high - low
  EXPECT_DOUBLE_EQ(a[1].atr, (0.5 * 3 + 0.25 * 2) / 0.75);                 // 13 - 10
  EXPECT_DOUBLE_EQ(a[2].atr, (0.5 * 5.5 + 0.25 * 3 + 0.125 * 2) / 0.875);  // 12.5 - 7
}

}  // namespace
}  // namespace vulpes::market
