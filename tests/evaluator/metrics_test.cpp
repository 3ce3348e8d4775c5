#include "vulpes/evaluator/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace vulpes::evaluator {
namespace {

std::optional<double> value_of(const io::Record& record, const std::string& name) {
  for (const auto& [key, value] : record) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no metric " << name;
  return std::nullopt;
}

/// An account with these simple returns and nothing else.
Performance of_returns(const std::vector<double>& returns, double bars_a_year = 252) {
  Performance p;
  p.bars_a_year = bars_a_year;
  p.equity = {1000};
  for (const double r : returns) p.equity.push_back(p.equity.back() * (1 + r));
  p.exposure.assign(returns.size(), 0);
  p.fees = p.traded_notional = p.exposure;
  return p;
}

TEST(Metrics, FourReturnsByHand) {
  // Equity 1000, 1100, 990, 1039.5, 1018.71.
  const io::Record m = performance_metrics(of_returns({.1, -.1, .05, -.02}, 4));
  const double mean = .03 / 4;
  const double deviation = std::sqrt((.0925 * .0925 + .1075 * .1075 + .0425 * .0425 + .0275 * .0275) / 3);
  EXPECT_NEAR(*value_of(m, "total_return"), .01871, 1e-12);
  EXPECT_NEAR(*value_of(m, "annual_return"), .01871, 1e-12);
  EXPECT_NEAR(*value_of(m, "annual_volatility"), 2 * deviation, 1e-12);
  EXPECT_NEAR(*value_of(m, "sharpe"), 2 * mean / deviation, 1e-12);
  EXPECT_NEAR(*value_of(m, "sortino"), 2 * mean / std::sqrt((.01 + .0004) / 4), 1e-12);
  EXPECT_NEAR(*value_of(m, "max_drawdown"), -.1, 1e-12);
  EXPECT_EQ(*value_of(m, "max_drawdown_bars"), 3);  // never recovered
  EXPECT_NEAR(*value_of(m, "calmar"), .1871, 1e-11);
  EXPECT_NEAR(*value_of(m, "value_at_risk_95"), -.1 + .15 * .08, 1e-12);
  EXPECT_NEAR(*value_of(m, "expected_shortfall_95"), -.1, 1e-12);
  EXPECT_NEAR(*value_of(m, "growth_per_bar"), std::log(1.01871) / 4, 1e-12);
}

TEST(Metrics, ExpectedShortfallIsTheMeanOfTheLowestTwentieth) {
  std::vector<double> returns;
  for (int i = 1; i <= 41; ++i) returns.push_back(.001 * i);
  const io::Record m = performance_metrics(of_returns(returns));
  EXPECT_NEAR(*value_of(m, "value_at_risk_95"), .003, 1e-12);
  EXPECT_NEAR(*value_of(m, "expected_shortfall_95"), .002, 1e-12);
}

TEST(Metrics, DrawdownCountsFromTheInitialCapital) {
  const io::Record m = performance_metrics(of_returns({-.5, .5, 0, 1, .1}));
  EXPECT_NEAR(*value_of(m, "max_drawdown"), -.5, 1e-15);
  EXPECT_EQ(*value_of(m, "max_drawdown_bars"), 4);  // 1000, 500, 750, 750, 1500
}

TEST(Metrics, LengthIsThatOfTheLargestDrawdown) {
  const io::Record m = performance_metrics(of_returns({.1, -.01, -.01, -.01, .1, -.2, .3}));
  EXPECT_NEAR(*value_of(m, "max_drawdown"), -.2, 1e-15);
  EXPECT_EQ(*value_of(m, "max_drawdown_bars"), 2);
}

// cases.md: 250 returns of .001: Sharpe absent, not 2.4e16.
TEST(Metrics, ConstantReturnsHaveNoSharpe) {
  const io::Record m = performance_metrics(of_returns(std::vector<double>(250, .001)));
  EXPECT_FALSE(value_of(m, "sharpe"));
  EXPECT_FALSE(value_of(m, "sortino"));
  EXPECT_FALSE(value_of(m, "calmar"));
  EXPECT_EQ(*value_of(m, "annual_volatility"), 0);
  EXPECT_NEAR(*value_of(m, "total_return"), std::pow(1.001, 250) - 1, 1e-12);
  // A spread that is small but real counts.
  std::vector<double> returns(250, .001);
  returns[0] += 1e-6;
  EXPECT_TRUE(value_of(performance_metrics(of_returns(returns)), "sharpe"));
}

TEST(Metrics, UndefinedValuesAreAbsent) {
  const io::Record none = performance_metrics(of_returns({}));
  for (const auto& [name, value] : none) {
    if (name == "trades" || name == "open_trades" || name == "fees_paid") {
      EXPECT_EQ(value, 0.0) << name;
    } else {
      EXPECT_FALSE(value) << name;
    }
  }
  const io::Record one = performance_metrics(of_returns({-.1}));
  for (const char* name : {"annual_volatility", "sharpe", "sortino", "value_at_risk_95", "expected_shortfall_95",
                           "hit_rate", "profit_factor"}) {
    EXPECT_FALSE(value_of(one, name)) << name;
  }
  EXPECT_NEAR(*value_of(one, "max_drawdown"), -.1, 1e-15);
  const io::Record unknown_year = performance_metrics(of_returns({.1, -.1, .2}, 0));
  for (const char* name : {"annual_return", "annual_volatility", "sharpe", "sortino", "calmar", "turnover"}) {
    EXPECT_FALSE(value_of(unknown_year, name)) << name;
  }
  // One bar of a doubling, of 12,096 a year: 2^12096 is no double.
  EXPECT_FALSE(value_of(performance_metrics(of_returns({1.0}, 12096)), "annual_return"));
}

TEST(Metrics, ExposureTurnoverAndFees) {
  Performance p = of_returns({.1, -.1}, 10);
  p.exposure = {1, -.5};
  p.fees = {3, -1};  // a rebate
  p.traded_notional = {500, 1650};
  const io::Record m = performance_metrics(p);
  EXPECT_NEAR(*value_of(m, "turnover"), 10 * (.5 + 1.5) / 2, 1e-12);
  EXPECT_NEAR(*value_of(m, "mean_exposure"), .25, 1e-15);
  EXPECT_NEAR(*value_of(m, "mean_absolute_exposure"), .75, 1e-15);
  EXPECT_NEAR(*value_of(m, "fees_paid"), 2, 1e-15);
}

TEST(Metrics, HitRateAndProfitFactorAreOfClosedTrades) {
  Performance p = of_returns({.1, -.1});
  p.trades = {{0, 1, 30, 1, false}, {0, 1, -10, 1, false}, {0, 1, 0, -1, false}, {0, 1, -500, 1, true}};
  io::Record m = performance_metrics(p);
  EXPECT_NEAR(*value_of(m, "hit_rate"), 1.0 / 3, 1e-15);
  EXPECT_NEAR(*value_of(m, "profit_factor"), 3, 1e-15);
  EXPECT_EQ(*value_of(m, "trades"), 3);
  EXPECT_EQ(*value_of(m, "open_trades"), 1);
  p.trades = {{0, 1, 30, 1, false}};
  m = performance_metrics(p);
  EXPECT_EQ(*value_of(m, "hit_rate"), 1);
  EXPECT_FALSE(value_of(m, "profit_factor"));
}

TEST(Metrics, RefusesWhatIsNoEquityCurve) {
  Performance p = of_returns({.1, .1});
  p.equity[1] = 0;
  EXPECT_THROW(performance_metrics(p), std::invalid_argument);
  p.equity[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(performance_metrics(p), std::invalid_argument);
  p = of_returns({.1, .1});
  p.fees.pop_back();
  EXPECT_THROW(performance_metrics(p), std::invalid_argument);
}

TEST(TradeBook, LongAtTheEndOfDataIsOpen) {
  TradeBook book;
  book.fill(3, 1, 100, 0);
  const std::vector<Trade> trades = book.trades(8, 110);
  ASSERT_EQ(trades.size(), 1u);
  EXPECT_TRUE(trades[0].open);
  EXPECT_EQ(trades[0].opened, 3);
  EXPECT_EQ(trades[0].closed, 8);
  EXPECT_EQ(trades[0].direction, 1);
  EXPECT_DOUBLE_EQ(trades[0].profit, 10);
}

TEST(TradeBook, PartialFillsAreOneTradeAtTheirAverageCost) {
  TradeBook book;
  book.fill(0, -1, 100, 1);
  book.fill(1, -3, 104, 1);  // average 103
  book.fill(2, 2, 100, 1);   // 6 realised
  book.fill(5, 2, 108, 1);   // -10 realised
  EXPECT_EQ(book.units(), 0);
  const std::vector<Trade> trades = book.trades(9, 1);
  ASSERT_EQ(trades.size(), 1u);
  EXPECT_FALSE(trades[0].open);
  EXPECT_EQ(trades[0].opened, 0);
  EXPECT_EQ(trades[0].closed, 5);
  EXPECT_EQ(trades[0].direction, -1);
  EXPECT_DOUBLE_EQ(trades[0].profit, 2 * 3 - 2 * 5 - 4);
}

TEST(TradeBook, FlipClosesAndOpensAndSharesItsFee) {
  TradeBook book;
  book.fill(0, 2, 100, 2);
  book.fill(4, -3, 110, 3);
  const std::vector<Trade> trades = book.trades(6, 105);
  ASSERT_EQ(trades.size(), 2u);
  EXPECT_FALSE(trades[0].open);
  EXPECT_EQ(trades[0].closed, 4);
  EXPECT_DOUBLE_EQ(trades[0].profit, 20 - 2 - 2);
  EXPECT_TRUE(trades[1].open);
  EXPECT_EQ(trades[1].opened, 4);
  EXPECT_EQ(trades[1].direction, -1);
  EXPECT_DOUBLE_EQ(trades[1].profit, 5 - 1);
  EXPECT_EQ(book.units(), -1);
}

// cases.md: -4 bps commission (a rebate), bought at 100.
TEST(TradeBook, RebateAddsToTheProfit) {
  TradeBook book;
  book.fill(0, 1, 100, -.04);
  EXPECT_NEAR(book.trades(0, 100)[0].profit, .04, 1e-12);
}

}  // namespace
}  // namespace vulpes::evaluator
