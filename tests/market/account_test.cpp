// The account's step against fills computed by hand.
#include "vulpes/market/account.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

namespace vulpes::market {
namespace {

static_assert(std::is_trivially_copyable_v<Account> && std::is_trivially_copyable_v<AccountRules> &&
              std::is_trivially_copyable_v<Bar>);

AccountRules free_rules() { return {0, 0, 0, 0.5, 1.0, 0.2, 1000.0}; }
AccountRules costly_rules() { return {0.001, 0.0004, 0.0002, 0.5, 1.0, 0.2, 1000.0}; }

constexpr Bar bar(double open, double high, double low, double close, double atr = 4.0) {
  return {open, high, low, close, atr};
}
Action act(double level, OrderType order = OrderType::market, int urgency = 0) {
  return {static_cast<std::uint8_t>(std::lround((level + 1.0) * 4.0)), static_cast<std::uint8_t>(order),
          static_cast<std::uint8_t>(urgency)};
}

const Bar decided = bar(99, 101, 98, 100);

/// An account with equity 1000 at a close of 100 and the given exposure.
Account holding(double exposure_at_100) {
  Account a = open_account(free_rules());
  a.units = exposure_at_100 * 10.0;
  a.cash = 1000.0 - a.units * 100.0;
  a.entry_price = a.units != 0 ? 100.0 : 0.0;
  return a;
}

TEST(Account, RulesComeFromBasisPoints) {
  io::AccountConfig c;
  c.maker_fee_bp = -4;
  const AccountRules r = make_account_rules(c);
  EXPECT_DOUBLE_EQ(r.taker_fee, 0.001);
  EXPECT_DOUBLE_EQ(r.maker_fee, -0.0004);
  EXPECT_DOUBLE_EQ(r.half_spread, 0.0002);
  EXPECT_DOUBLE_EQ(r.initial_equity, 100000.0);
}

TEST(Account, DecisionOnBarZeroFillsAtTheNextOpen) {  // open/close 100/110, 110/120
  Account a = open_account(free_rules());
  const BarOutcome o = advance(a, free_rules(), act(1), bar(100, 110, 100, 110), bar(110, 120, 110, 120));
  ASSERT_TRUE(o.fill.filled);
  EXPECT_DOUBLE_EQ(o.fill.price, 110.0);
  EXPECT_DOUBLE_EQ(o.fill.units, 1000.0 / 110.0);
  EXPECT_NEAR(a.equity, 1000.0 * 120.0 / 110.0, 1e-9);
  EXPECT_NEAR(o.log_growth, std::log(120.0 / 110.0), 1e-12);
}

TEST(Account, MarketOrderPaysSpreadAndTakerFee) {
  const AccountRules r = costly_rules();
  Account a = open_account(r);
  const BarOutcome o = advance(a, r, act(0.5), decided, bar(102, 104, 101, 103));
  const double price = 102 * 1.0002, fee = 5 * price * 0.001;
  EXPECT_DOUBLE_EQ(o.fill.units, 5.0);  // half of 1000 at the close of 100
  EXPECT_DOUBLE_EQ(o.fill.price, price);
  EXPECT_NEAR(o.fill.fee, fee, 1e-12);
  EXPECT_TRUE(o.fill.taker);
  EXPECT_NEAR(o.traded_notional, 5 * price, 1e-9);
  EXPECT_NEAR(a.cash, 1000 - 5 * price - fee, 1e-9);
  EXPECT_NEAR(a.equity, a.cash + 5 * 103, 1e-9);
  EXPECT_EQ(a.bars_held, 1);

  Account s = open_account(r);
  EXPECT_DOUBLE_EQ(advance(s, r, act(-0.5), decided, bar(102, 104, 101, 103)).fill.price, 102 * 0.9998);
}

TEST(Account, LimitFillsOnlyWhenTheBarTradesStrictlyThrough) {
  const AccountRules r = costly_rules();
  const auto buy = [&](const Bar& next) {
    Account a = open_account(r);
    return advance(a, r, act(1, OrderType::limit), decided, next).fill;
  };
  EXPECT_FALSE(buy(bar(101, 102, 100, 101)).filled);  // touches 100 only
  EXPECT_FALSE(buy(bar(100, 102, 100, 101)).filled);  // opens at it, never below
  const Fill through = buy(bar(101, 102, 99.9, 101));
  ASSERT_TRUE(through.filled);
  EXPECT_DOUBLE_EQ(through.price, 100.0);
  EXPECT_FALSE(through.taker);
  EXPECT_NEAR(through.fee, 10 * 100 * 0.0004, 1e-12);
  const Fill gapped = buy(bar(99, 102, 98, 101));
  ASSERT_TRUE(gapped.filled);
  EXPECT_DOUBLE_EQ(gapped.price, 99.0);
  EXPECT_TRUE(gapped.taker);
  EXPECT_NEAR(gapped.fee, 10 * 99 * 0.001, 1e-12);

  const auto sell = [&](const Bar& next) {
    Account a = open_account(r);
    return advance(a, r, act(-1, OrderType::limit), decided, next).fill;
  };
  EXPECT_FALSE(sell(bar(99, 100, 98, 99)).filled);
  EXPECT_DOUBLE_EQ(sell(bar(99, 100.1, 98, 99)).price, 100.0);
  EXPECT_DOUBLE_EQ(sell(bar(101, 102, 98, 99)).price, 101.0);
}

TEST(Account, PassiveOrderRestsHalfAnAtrBetter) {
  const AccountRules r = costly_rules();
  const auto order = [&](double level, const Bar& next) {
    Account a = open_account(r);
    return advance(a, r, act(level, OrderType::passive), decided, next).fill;  // ATR 4: at 98 or 102
  };
  EXPECT_FALSE(order(1, bar(100, 101, 98, 99)).filled);
  EXPECT_DOUBLE_EQ(order(1, bar(100, 101, 97.5, 99)).price, 98.0);
  EXPECT_DOUBLE_EQ(order(1, bar(97, 101, 96, 99)).price, 97.0);
  EXPECT_FALSE(order(-1, bar(100, 102, 98, 99)).filled);
  EXPECT_DOUBLE_EQ(order(-1, bar(100, 102.5, 98, 99)).price, 102.0);
}

TEST(Account, RebateIsCashReceived) {  // -4 bps: buy one unit at 100 -> cash -99.96
  AccountRules r = free_rules();
  r.taker_fee = -0.0004;
  Account a{0, 0, 0, 0, 0, 0, 0, 0};
  book(a, execute(r, OrderType::market, 1.0, decided, bar(100, 100, 100, 100)));
  EXPECT_NEAR(a.cash, -99.96, 1e-12);
}

TEST(Account, LongAtDataEndIsMarkedAndOpen) {  // long from 100, end at 110: +10, 0 closed, 1 open
  AccountRules r = free_rules();
  r.initial_equity = 100;
  Account a = open_account(r);
  advance(a, r, act(1), bar(100, 100, 100, 100), bar(100, 111, 100, 110));
  EXPECT_NEAR(a.equity - a.start_equity, 10.0, 1e-12);
  EXPECT_EQ(a.closed_trades, 0);
  EXPECT_NE(a.units, 0.0);
  EXPECT_NEAR(unrealised_return(a, 110), 0.1, 1e-12);
}

TEST(Account, NearestLevelMeansNoTrade) {
  const AccountRules r = free_rules();
  for (const double e : {0.9, 1.0, 1.12, 1.6}) {  // beyond the ends the end is nearest
    Account a = holding(e);
    EXPECT_FALSE(advance(a, r, act(1), decided, decided).fill.filled) << e;
  }
  Account a = holding(0.87);
  EXPECT_TRUE(advance(a, r, act(1), decided, decided).fill.filled);
  Account b = holding(0.87);
  EXPECT_FALSE(advance(b, r, act(0.75), decided, decided).fill.filled);
  // For every exposure exactly one level stays.
  for (double e = -1.3; e < 1.3; e += 0.0125) {
    int stays = 0;
    for (int level = 0; level < exposure_levels; ++level) stays += is_nearest_level(r, level, e);
    EXPECT_EQ(stays, 1) << e;
  }
}

TEST(Account, UrgencyTradesAPartOfTheWay) {
  const AccountRules r = free_rules();
  const double wanted[] = {15.0, 7.5, 3.75};
  for (int u = 0; u < urgencies; ++u) {
    Account a = holding(-0.5);
    EXPECT_NEAR(advance(a, r, act(1, OrderType::market, u), decided, decided).fill.units, wanted[u], 1e-12);
  }
}

TEST(Account, FlipPaysForBothSides) {
  const AccountRules r = costly_rules();
  Account a = holding(1);
  a.bars_held = 7;
  const BarOutcome o = advance(a, r, act(-1), decided, bar(100, 101, 99, 100));
  EXPECT_DOUBLE_EQ(o.fill.units, -20.0);
  EXPECT_NEAR(o.fill.fee, 20 * 100 * 0.9998 * 0.001, 1e-12);
  EXPECT_DOUBLE_EQ(a.units, -10.0);
  EXPECT_DOUBLE_EQ(a.entry_price, 100 * 0.9998);
  EXPECT_EQ(a.bars_held, 1);
  EXPECT_EQ(a.closed_trades, 1);
}

TEST(Account, ClosingLeavesNoResidue) {
  const AccountRules r = costly_rules();
  Account a = holding(0.7312345);
  advance(a, r, act(0), decided, bar(101, 102, 100, 101.3));
  EXPECT_EQ(a.units, 0.0);
  EXPECT_EQ(a.entry_price, 0.0);
  EXPECT_EQ(a.bars_held, 0);
  EXPECT_EQ(unrealised_return(a, 50), 0.0);
}

TEST(Account, EntryPriceIsTheAverageOfIncreases) {
  const AccountRules r = free_rules();
  Account a = holding(0.25);                                   // 2.5 units at 100
  advance(a, r, act(0.75), decided, bar(106, 106, 100, 100));  // + 5 at 106
  EXPECT_NEAR(a.entry_price, (2.5 * 100 + 5 * 106) / 7.5, 1e-12);
  const double entry = a.entry_price;
  advance(a, r, act(0.25), bar(100, 100, 100, 100), bar(90, 100, 90, 100));
  EXPECT_DOUBLE_EQ(a.entry_price, entry);  // a reduction leaves it
  EXPECT_EQ(a.closed_trades, 0);
}

TEST(Account, LeverageCapBoundsTargetsAndNotDrift) {
  AccountRules r = free_rules();
  r.leverage_cap = 0.6;
  Account a = open_account(r);
  EXPECT_NEAR(advance(a, r, act(1), decided, bar(100, 100, 100, 100)).fill.units, 6.0, 1e-12);
  EXPECT_FALSE(advance(a, r, act(1), bar(100, 100, 100, 100), bar(100, 200, 100, 200)).fill.filled);  // already there
  EXPECT_NEAR(exposure(a, 200), 0.75, 1e-12);  // drifted beyond the cap: allowed
  for (int level = 0; level < exposure_levels; ++level) {
    for (int u = 0; u < urgencies; ++u) {
      const Action action{static_cast<std::uint8_t>(level), 0, static_cast<std::uint8_t>(u)};
      const double after = (a.units + order_units(a, r, action, 200)) * 200 / a.equity;
      EXPECT_LE(std::fabs(after), 0.75 + 1e-12);  // an order never adds to it
    }
  }
}

TEST(Account, RuinIsTerminalAtTheFloor) {
  const AccountRules r = free_rules();  // ruin at 0.2
  Account a = holding(-1);
  const BarOutcome o = advance(a, r, act(-1), decided, bar(150, 190, 150, 185));  // equity 150 left
  EXPECT_TRUE(o.ruined);
  EXPECT_DOUBLE_EQ(a.equity, 200.0);
  EXPECT_DOUBLE_EQ(a.units, 0.0);
  EXPECT_NEAR(o.log_growth, std::log(0.2), 1e-12);
  EXPECT_NEAR(log_growth(a), std::log(0.2), 1e-12);
  Account wiped = holding(-1);  // more than everything lost: still finite
  EXPECT_NEAR(advance(wiped, r, act(-1), decided, bar(250, 290, 250, 285)).log_growth, std::log(0.2), 1e-12);
  Account exact = holding(-1);  // at the floor is ruin
  EXPECT_TRUE(advance(exact, r, act(-1), decided, bar(150, 190, 150, 180)).ruined);
  Account alive = holding(-1);
  EXPECT_FALSE(advance(alive, r, act(-1), decided, bar(150, 190, 150, 179)).ruined);
}

TEST(Account, DrawdownIsFromThePeakOrTheStart) {
  const AccountRules r = free_rules();
  Account a = open_account(r);
  EXPECT_EQ(drawdown(a), 0.0);
  advance(a, r, act(1), decided, bar(100, 100, 80, 80));
  EXPECT_NEAR(drawdown(a), 0.2, 1e-12);
  advance(a, r, act(1), bar(80, 80, 80, 80), bar(80, 120, 80, 120));
  EXPECT_NEAR(drawdown(a), 0.0, 1e-12);
  advance(a, r, act(1), bar(120, 120, 120, 120), bar(120, 120, 90, 90));
  EXPECT_NEAR(drawdown(a), 0.25, 1e-12);
}

TEST(Account, GrowthsAddUpToTheEquity) {
  const AccountRules r = costly_rules();
  Account a = open_account(r);
  double sum = 0, fees = 0, close = 100;
  std::uint32_t state = 1;
  const auto random = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  Bar now = decided;
  for (int t = 0; t < 2000; ++t) {
    const double open = close * (1 + (random() % 101 - 50.0) * 1e-4),
                 next = open * (1 + (random() % 101 - 50.0) * 2e-4);
    const Bar b = bar(open, std::max(open, next) * 1.002, std::min(open, next) * 0.998, next, 0.01 * next);
    const Action action{static_cast<std::uint8_t>(random() % 9), static_cast<std::uint8_t>(random() % 3),
                        static_cast<std::uint8_t>(random() % 3)};
    const BarOutcome o = advance(a, r, action, now, b);
    sum += o.log_growth;
    fees += o.fill.fee;
    ASSERT_NEAR(a.equity, a.cash + a.units * b.close, 1e-9);
    now = b;
    close = next;
  }
  EXPECT_NEAR(sum, log_growth(a), 1e-9);
  EXPECT_GT(fees, 0);
}

}  // namespace
}  // namespace vulpes::market
