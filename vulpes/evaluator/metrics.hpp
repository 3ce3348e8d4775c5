// Performance metrics of an account's equity curve, and the trades it consists of. Host only, double.
#pragma once

#include <cstdint>
#include <vector>

#include "vulpes/io/records.hpp"

namespace vulpes::evaluator {

/// A position from its opening fill until it is closed or flipped. Partial fills of one direction belong to one trade.
struct Trade {
  std::int64_t opened, closed;  ///< bar of the first and of the last fill; of the last mark while open
  double profit;                ///< currency, fees and rebates included; at the last mark while open
  int direction;                ///< 1 long, -1 short
  bool open;                    ///< still held at the last bar
};

/// Builds trades from an account's fills.
///
/// A trade's profit is its net cash flow, which over a whole position is what average-cost accounting gives. A fill
/// that flips the position closes one trade and opens another, and its fee is shared between them by units.
class TradeBook {
 public:
  /// Books `units` (signed, not 0) at `price` in `bar`; `fee` is the cash paid for the whole fill, negative for a
  /// rebate.
  void fill(std::int64_t bar, double units, double price, double fee);

  /// Signed position.
  double units() const { return units_; }
  /// All trades by time of opening; an open position is the last one, marked at `price` in `bar`.
  std::vector<Trade> trades(std::int64_t bar, double price) const;

 private:
  void enter(std::int64_t bar, double units, double price, double fee);

  std::vector<Trade> closed_;
  Trade position_{};  ///< profit: net cash flow so far
  double units_ = 0;
};

/// What metrics are computed from. Bar i of T ends with equity[i + 1].
struct Performance {
  std::vector<double> equity;    ///< [T + 1] at each close; equity[0]: the initial capital; may be empty when T = 0
  std::vector<double> exposure;  ///< [T] position value / equity at the close
  std::vector<double> fees;      ///< [T] currency paid, negative for rebates
  std::vector<double> traded_notional;  ///< [T] currency
  std::vector<Trade> trades;            ///< bars: positions in `exposure`
  double bars_a_year = 0;               ///< 0: unknown, annual figures are absent
};

/// All metrics by name, in a fixed order; one that is undefined is absent, never NaN or 0. r: simple returns of the
/// bars, Y: bars a year, E: equity.
///
/// | name | value | absent |
/// |---|---|---|
/// | total_return | E_T / E_0 - 1 | T = 0 |
/// | annual_return | (E_T / E_0)^(Y / T) - 1 | T = 0, Y unknown, overflow |
/// | annual_volatility | sd(r) sqrt(Y), sd with T - 1 | T < 2, Y unknown |
/// | sharpe | mean(r) / sd(r) sqrt(Y), risk-free rate 0 | as above, sd = 0 |
/// | sortino | mean(r) / sqrt(mean(min(r, 0)^2)) sqrt(Y) | T < 2, Y unknown, no losing bar |
/// | calmar | annual_return / abs(max_drawdown) | no drawdown |
/// | max_drawdown | smallest E / (largest E so far, E_0 included) - 1; at most 0 | T = 0 |
/// | max_drawdown_bars | bars from that drawdown's peak until the peak is reached again, or to the end | T = 0 |
/// | hit_rate | share of closed trades with a profit above 0 | no closed trade |
/// | profit_factor | gross profit / gross loss of closed trades | no losing trade |
/// | turnover | traded notional / equity before the bar, a year | T = 0, Y unknown |
/// | mean_exposure, mean_absolute_exposure | over the bars | T = 0 |
/// | trades, open_trades | closed and open trades | never |
/// | fees_paid | sum, currency | never |
/// | value_at_risk_95 | 5th percentile of r, linearly interpolated | T < 2 |
/// | expected_shortfall_95 | mean of the floor(0.05 (T - 1)) + 1 lowest r | T < 2 |
/// | growth_per_bar | log(E_T / E_0) / T | T = 0 |
///
/// Names and conventions are those of empyrical. Deviations below 1e-12 are rounding of the equity and count as 0.
/// Throws std::invalid_argument when lengths do not fit or an equity is not finite and above 0.
io::Record performance_metrics(const Performance& performance);

}  // namespace vulpes::evaluator
