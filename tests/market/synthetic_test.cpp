#include "vulpes/market/synthetic.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "vulpes/market/baselines.hpp"
#include "vulpes/market/features.hpp"

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

io::SyntheticConfig regimes_config() {
  io::SyntheticConfig c;
  c.kind = "regimes";
  return c;
}

/// A long path of the default regime market with what it hides.
struct RegimePath {
  io::SyntheticConfig config = regimes_config();
  std::vector<Regime> regimes;
  Bars bars;
  std::vector<double> level;  ///< log price at which each bar's regime began

  explicit RegimePath(std::size_t n, std::uint32_t path = 0)
      : bars(generate_regimes(config, {3, 0}, path, n, &regimes)), level(n) {
    double now = std::log(100.0);
    for (std::size_t t = 0; t < n; ++t) {
      if (begins(t)) now = log_close(t - 1);
      level[t] = now;
    }
  }
  double log_close(std::size_t t) const { return std::log(bars.close[t]); }
  double log_return(std::size_t t) const { return log_close(t) - log_close(t - 1); }
  bool begins(std::size_t t) const { return t > 0 && regimes[t] != regimes[t - 1]; }
};

const RegimePath& long_path() {
  static const RegimePath path(400000);
  return path;
}

struct MeanAndDeviation {
  double count = 0, mean = 0, squares = 0;
  void add(double v) {
    const double d = v - mean;
    mean += d / ++count;
    squares += d * (v - mean);
  }
  double deviation() const { return std::sqrt(squares / (count - 1)); }
  double error() const { return deviation() / std::sqrt(count); }
};

TEST(Regimes, PassTheChecksOfRealBars) {
  std::vector<double> component(7);
  const Bars b = generate_synthetic(regimes_config(), {1, 0}, 0, 20000, &component);
  EXPECT_NO_THROW(check_bars(b, "synthetic", {}));
  EXPECT_EQ(b.close, generate_regimes(regimes_config(), {1, 0}, 0, 20000).close);
  EXPECT_NE(b.close, generate_synthetic({}, {1, 0}, 0, 20000).close);
  EXPECT_TRUE(component.empty());
  Bars again = b;
  EXPECT_EQ(assign_segments(again).gaps, 0);
}

TEST(Regimes, PrefixesAgreeAndSeedsAndPathsDiffer) {
  const io::SyntheticConfig c = regimes_config();
  std::vector<Regime> regimes, more;
  const Bars a = generate_regimes(c, {1, 0}, 0, 700, &regimes), longer = generate_regimes(c, {1, 0}, 0, 900, &more);
  for (const auto column : {&Bars::open, &Bars::high, &Bars::low, &Bars::close, &Bars::volume}) {
    EXPECT_EQ(a.*column, longer.slice(0, 700).*column);
  }
  more.resize(700);
  EXPECT_EQ(regimes, more);
  EXPECT_NE(a.close, generate_regimes(c, {2, 0}, 0, 700).close);
  EXPECT_NE(a.close, generate_regimes(c, {1, 1}, 0, 700).close);
  EXPECT_NE(a.close, generate_regimes(c, {1, 0}, 1, 700).close);
}

// The chain knows nothing of prices, so no price can announce a change.
TEST(Regimes, TheChainIsTheSameWhateverThePrices) {
  io::SyntheticConfig c = regimes_config();
  std::vector<Regime> regimes, others;
  generate_regimes(c, {1, 0}, 0, 5000, &regimes);
  c.regime_sd = 0.05;
  c.regime_trend = 0;
  c.substeps = 3;
  generate_regimes(c, {1, 0}, 0, 5000, &others);
  EXPECT_EQ(regimes, others);
}

TEST(Regimes, AreAMarkovChainThatSpendsAQuarterOfTheTimeInEach) {
  const RegimePath& p = long_path();
  std::array<double, regime_count> time{}, left{};
  double next[regime_count][regime_count] = {};
  MeanAndDeviation length;
  double bars = 0;
  for (std::size_t t = 0; t < p.regimes.size(); ++t) {
    if (p.begins(t)) {
      ++left[static_cast<int>(p.regimes[t - 1])];
      ++next[static_cast<int>(p.regimes[t - 1])][static_cast<int>(p.regimes[t])];
      length.add(bars);
      bars = 0;
    }
    ++bars;
    ++time[static_cast<int>(p.regimes[t])];
  }
  const double n = static_cast<double>(p.regimes.size());
  EXPECT_NEAR(length.mean, 64, 4 * length.error());
  EXPECT_NEAR(length.deviation(), std::sqrt(64.0 * 63.0), 3);  // geometric
  for (int k = 0; k < regime_count; ++k) {
    EXPECT_NEAR(time[k] / n, 0.25, 0.02) << k;
    EXPECT_NEAR(left[k] / time[k], 1.0 / 64, 4 / 64.0 / std::sqrt(left[k])) << k;
    for (int to = 0; to < regime_count; ++to) {
      EXPECT_NEAR(next[k][to] / left[k], to == k ? 0.0 : 1.0 / 3, 0.05) << k << " to " << to;
    }
  }
}

TEST(Regimes, TheFirstOneIsDrawnLikeAnyOther) {
  std::array<int, regime_count> first{};
  std::vector<Regime> regimes;
  for (std::uint32_t path = 0; path < 4000; ++path) {
    generate_regimes(regimes_config(), {1, 0}, path, 1, &regimes);
    ++first[static_cast<int>(regimes[0])];
  }
  for (const int count : first) EXPECT_NEAR(count, 1000, 4 * std::sqrt(750.0));
}

TEST(Regimes, ReturnsHaveTheirRegimesMeanAndDeviation) {
  const RegimePath& p = long_path();
  std::array<MeanAndDeviation, regime_count> returns;
  for (std::size_t t = 1; t < p.regimes.size(); ++t) returns[static_cast<int>(p.regimes[t])].add(p.log_return(t));
  const double means[] = {0.001, -0.001, 0, 0}, deviations[] = {0.003, 0.003, 0.003, 0.009};
  for (int k = 0; k < regime_count; ++k) {
    EXPECT_NEAR(returns[k].mean, means[k], 4 * returns[k].error()) << k;
    EXPECT_NEAR(returns[k].deviation() / deviations[k], 1.0, 0.015) << k;
  }
}

TEST(Regimes, ARangeRevertsToWhereItBegan) {
  const RegimePath& p = long_path();
  double square = 0, product = 0, count = 0, old_square = 0, old_count = 0, innovation = 0;
  std::size_t since = 0;
  for (std::size_t t = 1; t < p.regimes.size(); ++t) {
    since = p.begins(t) ? 0 : since + 1;
    if (p.regimes[t] != Regime::range) continue;
    const double before = p.log_close(t - 1) - p.level[t], x = p.log_close(t) - p.level[t];
    square += before * before, product += before * x, ++count;
    innovation += (x - 0.85 * before) * (x - 0.85 * before);
    if (since > 30) old_square += x * x, ++old_count;
  }
  EXPECT_NEAR(product / square, 0.85, 0.01);
  const double stationary = 0.003 / std::sqrt(2 * (1 - 0.85));
  EXPECT_NEAR(std::sqrt(innovation / count) / (stationary * std::sqrt(1 - 0.85 * 0.85)), 1.0, 0.01);
  EXPECT_NEAR(std::sqrt(old_square / old_count) / stationary, 1.0, 0.02);
}

TEST(Regimes, AreTheSameLateAsEarly) {
  const RegimePath& p = long_path();
  MeanAndDeviation halves[2];
  for (std::size_t t = 1; t < p.regimes.size(); ++t) halves[2 * t >= p.regimes.size()].add(p.log_return(t));
  EXPECT_NEAR(halves[0].deviation() / halves[1].deviation(), 1.0, 0.03);
  // Returns are correlated within a trend: the error of their mean is 0.001 sqrt(64 / n) and more, not deviation /
  // sqrt(n).
  EXPECT_NEAR(halves[0].mean, halves[1].mean, 4 * std::sqrt(2.0 / 200000) * (0.001 * 8 + 0.009));
}

// A bar's return and volume are distributed alike whether or not its regime ends with it.
TEST(Regimes, NothingInABarAnnouncesTheNextOnesRegime) {
  const RegimePath& p = long_path();
  MeanAndDeviation last[regime_count], other[regime_count], last_volume, other_volume;
  for (std::size_t t = 1; t + 1 < p.regimes.size(); ++t) {
    const bool ends = p.begins(t + 1);
    (ends ? last : other)[static_cast<int>(p.regimes[t])].add(p.log_return(t));
    (ends ? last_volume : other_volume).add(std::log(p.bars.volume[t]));
  }
  for (int k = 0; k < regime_count; ++k) {
    EXPECT_NEAR(last[k].mean, other[k].mean, 4 * last[k].error()) << k;
    EXPECT_NEAR(last[k].deviation() / other[k].deviation(), 1.0, 4 / std::sqrt(2 * last[k].count)) << k;
  }
  EXPECT_NEAR(last_volume.mean, other_volume.mean, 4 * last_volume.error());
}

TEST(Regimes, OpenIsOneSubStepAfterTheClose) {
  const RegimePath& p = long_path();
  MeanAndDeviation gap;
  for (std::size_t t = 1; t < p.regimes.size(); ++t) {
    if (p.regimes[t] == Regime::turbulent) gap.add(std::log(p.bars.open[t] / p.bars.close[t - 1]));
  }
  EXPECT_NEAR(gap.deviation() / (0.009 / 4), 1.0, 0.02);
}

/// Mean log growth a bar of `level(t)`, an exposure level chosen at each bar, by market orders at full urgency.
template <class Level>
double growth_of(const RegimePath& p, std::size_t begin, const Level& level) {
  const io::AccountConfig costs;
  const AccountRules rules = make_account_rules(costs);
  const std::vector<Bar> bars = account_bars(p.bars, costs);
  Account account = open_account(rules);
  double growth = 0;
  for (std::size_t t = begin; t + 1 < bars.size(); ++t) {
    growth += advance(account, rules, {static_cast<std::uint8_t>(level(t)), 0, 0}, bars[t], bars[t + 1]).log_growth;
  }
  return growth / static_cast<double>(bars.size() - 1 - begin);
}

// Knowing the regime earns well after costs, holding the asset earns nothing, and a moving average of prices alone gets
// half as far as knowing: there is something to learn, and prices show it.
TEST(Regimes, CanBeTradedAfterCosts) {
  constexpr int paths = 8;
  constexpr std::size_t begin = 256, n = 16384;
  MeanAndDeviation trend, range, average, hold;
  for (std::uint32_t path = 0; path < paths; ++path) {
    const RegimePath p(n, path);
    const auto by_trend = [&](std::size_t t) {
      return p.regimes[t] == Regime::up ? 8 : p.regimes[t] == Regime::down ? 0 : 4;
    };
    trend.add(1e4 * growth_of(p, begin, by_trend));
    int position = 0;
    range.add(1e4 * growth_of(p, begin, [&](std::size_t t) {
                const double z = (p.log_close(t) - p.level[t]) / (range_width * p.config.regime_sd);
                if (p.regimes[t] != Regime::range || p.begins(t) || position * z >= 0) position = 0;
                if (p.regimes[t] == Regime::range && std::abs(z) >= 1) position = z > 0 ? -1 : 1;
                return p.regimes[t] == Regime::range ? 4 + 4 * position : by_trend(t);
              }));
    double mean = p.log_close(0);
    for (std::size_t t = 1; t < begin; ++t) mean += (p.log_close(t) - mean) * 2 / 65;
    position = 0;
    average.add(1e4 * growth_of(p, begin, [&](std::size_t t) {
                  mean += (p.log_close(t) - mean) * 2 / 65;
                  const double z = (p.log_close(t) - mean) / (6 * p.config.regime_sd);
                  position = std::abs(z) > 1 ? (z > 0 ? 1 : -1) : position * z < 0 ? 0 : position;
                  return 4 + 4 * position;
                }));
    double sum = 0;
    for (const double g : run_baseline(Baseline::buy_and_hold, p.bars, {}, begin, n)) sum += g;
    hold.add(1e4 * sum / static_cast<double>(n - begin - 1));
  }
  RecordProperty("oracle_bp", std::to_string(range.mean));
  EXPECT_GT(trend.mean, 4.0);
  EXPECT_GT(range.mean, trend.mean + 0.5);
  EXPECT_GT(average.mean, 1.5);
  EXPECT_NEAR(hold.mean, 0.0, 3 * hold.error());
  EXPECT_LT(hold.error(), 0.5);
}

}  // namespace
}  // namespace vulpes::market
