#include "vulpes/market/synthetic.hpp"

#include <algorithm>
#include <cmath>

namespace vulpes::market {
namespace {

// Blocks of a bar's draws (core/random.hpp): one a sub-step under iteration = bar * substeps + sub-step, then these.
constexpr std::uint32_t substep_block = 0, volume_block = 1, start_block = 2;

constexpr std::int64_t first_time = 1'577'836'800'000'000'000;  // 2020-01-01T00:00Z
constexpr std::int64_t bar_ns = 3'600'000'000'000;
const double first_log_price = std::log(100.0);

/// Bars whose log price at sub-step j of bar t is `price(t, j)`; called once for each, in order.
template <class Price>
Bars make_bars(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars, Price&& price) {
  Bars r;
  r.time.resize(bars);
  r.open.resize(bars);
  r.high.resize(bars);
  r.low.resize(bars);
  r.close.resize(bars);
  r.volume.resize(bars);
  r.segment.assign(bars, 0);
  for (std::size_t t = 0; t < bars; ++t) {
    double open = 0, high = -1e300, low = 1e300, p = 0;
    for (std::int64_t j = 0; j < config.substeps; ++j) {
      p = price(t, static_cast<std::uint64_t>(j));
      if (j == 0) open = p;
      high = std::max(high, p);
      low = std::min(low, p);
    }
    r.time[t] = first_time + static_cast<std::int64_t>(t) * bar_ns;
    r.open[t] = std::exp(open);
    r.high[t] = std::exp(high);
    r.low[t] = std::exp(low);
    r.close[t] = std::exp(p);
    const NormalPair z = normal_pair(random_words(key, Purpose::market_component, t, path, volume_block));
    r.volume[t] = std::round(1e4 * std::exp(0.5 * z.first));
  }
  return r;
}

}  // namespace

Bars generate_synthetic(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                        std::vector<double>* component) {
  if (config.kind != "regimes") return generate_mean_reverting(config, key, path, bars, component);
  if (component != nullptr) component->clear();
  return generate_regimes(config, key, path, bars);
}

Bars generate_mean_reverting(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                             std::vector<double>* component) {
  const auto draw = [&](std::uint64_t iteration, std::uint32_t block) {
    return normal_pair(random_words(key, Purpose::market_component, iteration, path, block));
  };
  const auto substeps = static_cast<std::uint64_t>(config.substeps);
  const double n = static_cast<double>(substeps);
  const double phi = std::pow(config.phi, 1.0 / n);
  const double component_sd = config.component_sd * std::sqrt(1.0 - phi * phi);
  const double walk_sd = config.walk_sd / std::sqrt(n);
  if (component != nullptr) component->resize(bars);

  double x = config.component_sd * draw(0, start_block).first;
  double walk = first_log_price - x;
  return make_bars(config, key, path, bars, [&](std::size_t t, std::uint64_t j) {
    const NormalPair z = draw(t * substeps + j, substep_block);
    x = phi * x + component_sd * z.first;
    walk += walk_sd * z.second;
    if (component != nullptr && j + 1 == substeps) (*component)[t] = x;
    return walk + x;
  });
}

Bars generate_regimes(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                      std::vector<Regime>* regimes) {
  const auto substeps = static_cast<std::uint64_t>(config.substeps);
  const double n = static_cast<double>(substeps);
  const double drift = config.regime_trend / n, sd = config.regime_sd / std::sqrt(n);
  const double phi = std::pow(range_phi, 1.0 / n);
  const double range_sd = config.regime_sd * range_width * std::sqrt(1.0 - phi * phi);
  if (regimes != nullptr) regimes->resize(bars);

  auto regime = static_cast<Regime>(
      uniform_below(random_words(key, Purpose::market_regime, 0, path, start_block)[0], regime_count));
  double price = first_log_price, level = price;  // `level`: where the regime began
  return make_bars(config, key, path, bars, [&](std::size_t t, std::uint64_t j) {
    if (j == 0) {
      const auto words = random_words(key, Purpose::market_regime, t, path);
      if (t > 0 && uniform_double(words[0], words[1]) * config.regime_bars < 1.0) {
        regime = static_cast<Regime>(
            (static_cast<std::uint32_t>(regime) + 1 + uniform_below(words[2], regime_count - 1)) % regime_count);
        level = price;
      }
      if (regimes != nullptr) (*regimes)[t] = regime;
    }
    const double z = normal_pair(random_words(key, Purpose::market_walk, t * substeps + j, path)).first;
    switch (regime) {
      case Regime::up:
        price += drift + sd * z;
        break;
      case Regime::down:
        price += -drift + sd * z;
        break;
      case Regime::range:
        price = level + phi * (price - level) + range_sd * z;
        break;
      case Regime::turbulent:
        price += turbulent_factor * sd * z;
        break;
    }
    return price;
  });
}

}  // namespace vulpes::market
