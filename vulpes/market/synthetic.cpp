#include "vulpes/market/synthetic.hpp"

#include <algorithm>
#include <cmath>

namespace vulpes::market {
namespace {

// Blocks of a bar's draws (core/random.hpp): one a sub-step under iteration = bar * substeps + sub-step, then these.
constexpr std::uint32_t substep_block = 0, volume_block = 1, start_block = 2;

constexpr std::int64_t first_time = 1'577'836'800'000'000'000;  // 2020-01-01T00:00Z
constexpr std::int64_t bar_ns = 3'600'000'000'000;

}  // namespace

Bars generate_synthetic(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                        std::vector<double>* component) {
  const auto draw = [&](std::uint64_t iteration, std::uint32_t block) {
    return normal_pair(random_words(key, Purpose::market_component, iteration, path, block));
  };
  const auto substeps = static_cast<std::uint64_t>(config.substeps);
  const double n = static_cast<double>(substeps);
  const double phi = std::pow(config.phi, 1.0 / n);
  const double component_sd = config.component_sd * std::sqrt(1.0 - phi * phi);
  const double walk_sd = config.walk_sd / std::sqrt(n);

  Bars r;
  r.time.resize(bars);
  r.open.resize(bars);
  r.high.resize(bars);
  r.low.resize(bars);
  r.close.resize(bars);
  r.volume.resize(bars);
  r.segment.assign(bars, 0);
  if (component != nullptr) component->resize(bars);

  double x = config.component_sd * draw(0, start_block).first;
  double walk = std::log(100.0) - x;  // the path starts at a price of 100
  for (std::size_t t = 0; t < bars; ++t) {
    double open = 0, high = -1e300, low = 1e300, price = 0;
    for (std::uint64_t j = 0; j < substeps; ++j) {
      const NormalPair z = draw(t * substeps + j, substep_block);
      x = phi * x + component_sd * z.first;
      walk += walk_sd * z.second;
      price = walk + x;
      if (j == 0) open = price;
      high = std::max(high, price);
      low = std::min(low, price);
    }
    r.time[t] = first_time + static_cast<std::int64_t>(t) * bar_ns;
    r.open[t] = std::exp(open);
    r.high[t] = std::exp(high);
    r.low[t] = std::exp(low);
    r.close[t] = std::exp(price);
    r.volume[t] = std::round(1e4 * std::exp(0.5 * draw(t, volume_block).first));
    if (component != nullptr) (*component)[t] = x;
  }
  return r;
}

}  // namespace vulpes::market
