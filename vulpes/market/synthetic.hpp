// The synthetic markets: a random walk plus a mean-reverting component, and regimes of trend, range and turbulence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "vulpes/core/random.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/market/bars.hpp"

namespace vulpes::market {

/// `bars` hourly bars from 2020-01-01T00:00Z as one segment, starting at a price of 100, of the market that
/// `config.kind` names. Prices are sampled at `substeps` points a bar: a bar's open is its first sub-step, its close
/// the last, so that open differs from the previous close by one sub-step. Volume is independent of prices.
///
/// A pure function of (config, key, path, bar): prefixes agree whatever the length. `component` (may be null) receives
/// the hidden component of the mean-reverting market at each close, for the full-information optimum and tests only; it
/// is left empty by a market that has none.
Bars generate_synthetic(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                        std::vector<double>* component = nullptr);

/// log price = log 100 + random walk + x, where x is a stationary AR(1) with coefficient phi and standard deviation
/// component_sd; x has coefficient phi^(1/substeps) a sub-step, which makes the AR(1) exact at either sampling.
Bars generate_mean_reverting(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                             std::vector<double>* component = nullptr);

/// up, down: the log price drifts by +-regime_trend a bar. range: an AR(1) about the log price at which the regime
/// began. turbulent: no drift, a larger standard deviation.
enum class Regime : std::uint8_t { up, down, range, turbulent };
inline constexpr int regime_count = 4;
/// Coefficient of the range's AR(1) a bar, and its stationary standard deviation in units of that of a bar's return.
inline constexpr double range_phi = 0.85, range_width = 1.8257418583505538;  // 1 / sqrt(2 (1 - phi))
inline constexpr double turbulent_factor = 3.0;

/// A Markov chain over the regimes (Hamilton 1989): before each bar it leaves its regime with probability 1 /
/// regime_bars for one of the three others, each as likely, so that a regime lasts regime_bars on average and each has
/// a quarter of the time; the first one is drawn likewise. A bar's log return has standard deviation regime_sd about
/// its drift, turbulent_factor times that in turbulence. `regimes` (may be null) receives each bar's regime, for tests.
Bars generate_regimes(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                      std::vector<Regime>* regimes = nullptr);

}  // namespace vulpes::market
