#include "vulpes/evaluator/stitch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace vulpes::evaluator {
namespace {

/// A walk of an account that starts with `equity`.
class WalkMaker {
 public:
  explicit WalkMaker(double equity) : cash_(equity) { walk_.start_equity = equity; }

  /// Trades `units` at `price` for `fee`, then marks at `close`.
  WalkMaker& bar(double units, double price, double fee, double close) {
    cash_ -= units * price + fee;
    units_ += units;
    return mark(units, price, fee, cash_ + units_ * close, units_ * close);
  }
  /// Ends as the account does at ruin: closed out at `equity`.
  WalkMaker& ruin(double equity) {
    walk_.ruined = true;
    return mark(0, 0, 0, equity, 0);
  }
  const WalkResult& walk() const { return walk_; }

 private:
  WalkMaker& mark(double units, double price, double fee, double equity, double value) {
    kernels::BacktestRecord record{};
    const double before = walk_.records.empty() ? walk_.start_equity : walk_.records.back().equity;
    record.log_growth = std::log(equity / before);
    record.equity = equity;
    record.exposure = value / equity;
    record.fill_units = units;
    record.fill_price = price;
    record.fee = fee;
    walk_.records.push_back(record);
    return *this;
  }

  WalkResult walk_;
  double cash_, units_ = 0;
};

double profit_of(const Performance& p) {
  double sum = 0;
  for (const Trade& t : p.trades) sum += t.profit;
  return sum;
}

// cases.md: long from 100, data end at 110: +10 in the equity, 0 closed trades, 1 open.
TEST(Stitch, LongFrom100ToTheEndOfDataAt110) {
  WalkMaker maker(1000);
  maker.bar(1, 100, 0, 100).bar(0, 0, 0, 105).bar(0, 0, 0, 110);
  const Performance p = stitch({maker.walk()}, 252);
  EXPECT_EQ(p.equity, (std::vector<double>{1000, 1000, 1005, 1010}));
  const io::Record m = performance_metrics(p);
  for (const auto& [name, value] : m) {
    if (name == "trades") {
      EXPECT_EQ(value, 0.0);
    } else if (name == "open_trades") {
      EXPECT_EQ(value, 1.0);
    } else if (name == "hit_rate" || name == "profit_factor") {
      EXPECT_FALSE(value) << name;
    }
  }
  ASSERT_EQ(p.trades.size(), 1u);
  EXPECT_DOUBLE_EQ(p.trades[0].profit, 10);
  EXPECT_EQ(p.trades[0].opened, 0);
  EXPECT_EQ(p.trades[0].closed, 2);
}

TEST(Stitch, WalksFollowEachOtherWithTheirReturns) {
  WalkMaker first(1000), second(1000);
  first.bar(10, 100, 5, 110).bar(-10, 105, 5, 90);  // 1095, 1040
  second.bar(-10, 50, 2, 40).bar(4, 40, 2, 30);     // 1098, 1156
  const Performance p = stitch({first.walk(), second.walk()}, 252);
  const double scale = 1.04;
  ASSERT_EQ(p.equity.size(), 5u);
  EXPECT_DOUBLE_EQ(p.equity[2], 1040);
  EXPECT_DOUBLE_EQ(p.equity[3], 1098 * scale);
  EXPECT_DOUBLE_EQ(p.equity[4], 1156 * scale);
  EXPECT_DOUBLE_EQ(p.fees[2], 2 * scale);
  EXPECT_DOUBLE_EQ(p.traded_notional[2], 500 * scale);
  EXPECT_DOUBLE_EQ(p.exposure[2], -400.0 / 1098);
  ASSERT_EQ(p.trades.size(), 2u);
  EXPECT_FALSE(p.trades[0].open);
  EXPECT_DOUBLE_EQ(p.trades[0].profit, 40);
  EXPECT_TRUE(p.trades[1].open);
  EXPECT_EQ(p.trades[1].opened, 2);
  EXPECT_EQ(p.trades[1].closed, 3);
  EXPECT_NEAR(profit_of(p), p.equity.back() - p.equity.front(), 1e-9);
}

TEST(Stitch, RuinClosesThePosition) {
  WalkMaker maker(1000);
  maker.bar(-10, 100, 1, 150).ruin(200);
  const Performance p = stitch({maker.walk()}, 252);
  ASSERT_EQ(p.trades.size(), 1u);
  EXPECT_FALSE(p.trades[0].open);
  EXPECT_EQ(p.trades[0].closed, 1);
  EXPECT_NEAR(p.trades[0].profit, -800, 1e-9);
}

TEST(Stitch, NoWalksHaveCountsOnly) {
  for (const auto& [name, value] : performance_metrics(stitch({}, 252))) {
    EXPECT_EQ(value.has_value(), name == "trades" || name == "open_trades" || name == "fees_paid") << name;
  }
}

}  // namespace
}  // namespace vulpes::evaluator
