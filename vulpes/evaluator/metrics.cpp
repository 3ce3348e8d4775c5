#include "vulpes/evaluator/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "vulpes/core/errors.hpp"

namespace vulpes::evaluator {
namespace {

using Metric = std::optional<double>;

/// A quotient of equities carries a rounding error of some 1e-16; spreads of returns below this are nothing but that.
constexpr double resolution = 1e-12;

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double mean(const std::vector<double>& values) { return sum(values) / static_cast<double>(values.size()); }

double sample_deviation(const std::vector<double>& values) {
  const double centre = mean(values);
  double squares = 0;
  for (const double v : values) squares += (v - centre) * (v - centre);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

/// Root mean square of the negative values, over all of them.
double downside_deviation(const std::vector<double>& values) {
  double squares = 0;
  for (const double v : values) squares += v < 0 ? v * v : 0.0;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

struct Drawdown {
  double depth = 0;  ///< at most 0
  std::size_t bars = 0;
};

Drawdown largest_drawdown(const std::vector<double>& equity) {
  Drawdown largest;
  std::size_t peak = 0, peak_of_largest = 0;
  for (std::size_t i = 1; i < equity.size(); ++i) {
    if (equity[i] >= equity[peak]) peak = i;
    const double depth = equity[i] / equity[peak] - 1.0;
    if (depth < largest.depth) {
      largest.depth = depth;
      peak_of_largest = peak;
    }
  }
  if (largest.depth < 0) {
    std::size_t end = peak_of_largest + 1;
    while (end + 1 < equity.size() && equity[end] < equity[peak_of_largest]) ++end;
    largest.bars = end - peak_of_largest;
  }
  return largest;
}

void check(const Performance& p) {
  const std::size_t bars = p.exposure.size(), equities = p.equity.size();
  throw_if<std::invalid_argument>((bars > 0 && equities != bars + 1) || (bars == 0 && equities > 1) ||
                                      p.fees.size() != bars || p.traded_notional.size() != bars,
                                  "performance: " + std::to_string(bars) +
                                      " bars of exposure need one equity more and as many fees and notionals, not " +
                                      std::to_string(equities) + ", " + std::to_string(p.fees.size()) + " and " +
                                      std::to_string(p.traded_notional.size()));
  for (std::size_t i = 0; i < equities; ++i) {
    throw_if<std::invalid_argument>(!(p.equity[i] > 0) || !std::isfinite(p.equity[i]),
                                    "performance: equity " + std::to_string(i) + " is not finite and above 0");
  }
}

}  // namespace

void TradeBook::enter(std::int64_t bar, double units, double price, double fee) {
  position_ = {bar, bar, -units * price - fee, units > 0 ? 1 : -1, true};
  units_ = units;
}

void TradeBook::fill(std::int64_t bar, double units, double price, double fee) {
  if (units_ == 0.0) return enter(bar, units, price, fee);
  const double after = units_ + units;
  position_.closed = bar;
  if (units_ * after > 0.0) {
    position_.profit -= units * price + fee;
    units_ = after;
    return;
  }
  const double share = units_ / -units;  // of this fill: 1 for a plain close, less for a flip
  position_.profit += units_ * price - share * fee;
  position_.open = false;
  closed_.push_back(position_);
  units_ = 0;
  if (after != 0.0) enter(bar, after, price, (1.0 - share) * fee);
}

std::vector<Trade> TradeBook::trades(std::int64_t bar, double price) const {
  std::vector<Trade> all = closed_;
  if (units_ != 0.0) {
    Trade held = position_;
    held.closed = bar;
    held.profit += units_ * price;
    all.push_back(held);
  }
  return all;
}

io::Record performance_metrics(const Performance& p) {
  check(p);
  const std::size_t bars = p.exposure.size();
  const auto count = static_cast<double>(bars);
  const bool annual = p.bars_a_year > 0;

  std::vector<double> returns(bars), turnover(bars), absolute(bars);
  for (std::size_t i = 0; i < bars; ++i) {
    returns[i] = p.equity[i + 1] / p.equity[i] - 1.0;
    turnover[i] = p.traded_notional[i] / p.equity[i];
    absolute[i] = std::fabs(p.exposure[i]);
  }

  Metric total_return, annual_return, growth, annual_turnover, mean_exposure, mean_absolute, depth, depth_bars, calmar;
  if (bars >= 1) {
    const double ratio = p.equity.back() / p.equity.front();
    const Drawdown drawdown = largest_drawdown(p.equity);
    total_return = ratio - 1.0;
    growth = std::log(ratio) / count;
    depth = drawdown.depth;
    depth_bars = static_cast<double>(drawdown.bars);
    mean_exposure = mean(p.exposure);
    mean_absolute = mean(absolute);
    if (annual) {
      annual_return = std::pow(ratio, p.bars_a_year / count) - 1.0;
      annual_turnover = mean(turnover) * p.bars_a_year;
      if (drawdown.depth < -resolution) calmar = *annual_return / -drawdown.depth;
    }
  }

  Metric volatility, sharpe, sortino, value_at_risk, shortfall;
  if (bars >= 2) {
    const double deviation = sample_deviation(returns), downside = downside_deviation(returns);
    const bool varies = deviation > resolution;
    if (annual) {
      const double root = std::sqrt(p.bars_a_year);
      volatility = varies ? deviation * root : 0.0;
      if (varies) sharpe = mean(returns) / deviation * root;
      if (downside > resolution) sortino = mean(returns) / downside * root;
    }
    std::vector<double> sorted = returns;
    std::sort(sorted.begin(), sorted.end());
    const double position = 0.05 * (count - 1.0);
    const auto below = static_cast<std::size_t>(position);
    value_at_risk = sorted[below] + (position - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
    shortfall = std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(below) + 1, 0.0) /
                static_cast<double>(below + 1);
  }

  double closed = 0, open = 0, hits = 0, profit = 0, loss = 0;
  for (const Trade& trade : p.trades) {
    if (trade.open) {
      ++open;
      continue;
    }
    ++closed;
    if (trade.profit > 0) {
      ++hits;
      profit += trade.profit;
    } else {
      loss -= trade.profit;
    }
  }
  Metric hit_rate, profit_factor;
  if (closed > 0) hit_rate = hits / closed;
  if (loss > 0) profit_factor = profit / loss;

  io::Record record = {{"total_return", total_return},
                       {"annual_return", annual_return},
                       {"annual_volatility", volatility},
                       {"sharpe", sharpe},
                       {"sortino", sortino},
                       {"calmar", calmar},
                       {"max_drawdown", depth},
                       {"max_drawdown_bars", depth_bars},
                       {"hit_rate", hit_rate},
                       {"profit_factor", profit_factor},
                       {"turnover", annual_turnover},
                       {"mean_exposure", mean_exposure},
                       {"mean_absolute_exposure", mean_absolute},
                       {"trades", closed},
                       {"open_trades", open},
                       {"fees_paid", sum(p.fees)},
                       {"value_at_risk_95", value_at_risk},
                       {"expected_shortfall_95", shortfall},
                       {"growth_per_bar", growth}};
  for (auto& [name, value] : record) {
    if (value && !std::isfinite(*value)) value.reset();
  }
  return record;
}

}  // namespace vulpes::evaluator
