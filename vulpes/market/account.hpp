// The trading account: one device-callable step that collection, backtest, optimum and labels share.
//
// Decided after bar t closes; sized in units from equity and close at t; executed in bar t+1; marked at close t+1.
// All in double. Plain data: an account is copied into kernels, replay and checkpoints as it is.
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"
#include "vulpes/io/config.hpp"

namespace vulpes::market {

/// What the account needs of a bar.
struct Bar {
  double open, high, low, close;
  double atr;  ///< average true range up to and including this bar, price units
};

inline constexpr int exposure_levels = 9;
inline constexpr int order_types = 3;
inline constexpr int urgencies = 3;

/// market: at the next open, half the spread worse, taker fee. limit: rests at the close of bar t. passive: rests
/// `passive_atr` ATR better than that close.
enum class OrderType : std::uint8_t { market = 0, limit = 1, passive = 2 };

/// One choice of each branch: index of the exposure level, order type, index of the urgency.
struct Action {
  std::uint8_t exposure;
  std::uint8_t order;
  std::uint8_t urgency;
};

/// Target exposure of a level: -1, -0.75 ... 1 (fraction of equity).
KOKKOS_INLINE_FUNCTION constexpr double exposure_level(int level) { return -1.0 + 0.25 * level; }

/// Share of the way to the target that is traded: 1, 1/2, 1/4.
KOKKOS_INLINE_FUNCTION constexpr double urgency_share(int urgency) {
  return urgency == 0 ? 1.0 : urgency == 1 ? 0.5 : 0.25;
}

/// Costs and limits; fees and half spread are fractions of traded notional.
struct AccountRules {
  double taker_fee, maker_fee;
  double half_spread;
  double passive_atr;
  double leverage_cap;
  double ruin_fraction;
  double initial_equity;
};

inline AccountRules make_account_rules(const io::AccountConfig& c) {
  return {c.taker_fee_bp * 1e-4, c.maker_fee_bp * 1e-4, c.half_spread_bp * 1e-4, c.passive_atr,
          c.leverage_cap,        c.ruin_fraction,       c.initial_equity};
}

struct Account {
  double cash;
  double units;        ///< signed position
  double entry_price;  ///< average fill price of the open position; 0 when flat
  double equity;       ///< cash + units * the last close
  double peak_equity;  ///< largest equity at a close so far
  double start_equity;
  std::int32_t bars_held;      ///< closes at which the present position was marked; 0 when flat
  std::int32_t closed_trades;  ///< positions that were closed or flipped so far
};

KOKKOS_INLINE_FUNCTION Account open_account(const AccountRules& rules) {
  const double equity = rules.initial_equity;
  return {equity, 0.0, 0.0, equity, equity, equity, 0, 0};
}

/// Position value at `price` as a fraction of equity.
KOKKOS_INLINE_FUNCTION double exposure(const Account& account, double price) {
  const double value = account.units * price;
  return value / (account.cash + value);
}

/// Return of the open position since its average entry, positive when it gains; without fees; 0 when flat.
KOKKOS_INLINE_FUNCTION double unrealised_return(const Account& account, double price) {
  if (account.units == 0.0) return 0.0;
  const double move = price / account.entry_price - 1.0;
  return account.units > 0.0 ? move : -move;
}

/// Fraction of the peak equity that is lost now.
KOKKOS_INLINE_FUNCTION double drawdown(const Account& account) { return 1.0 - account.equity / account.peak_equity; }

/// log(equity / equity at the start).
KOKKOS_INLINE_FUNCTION double log_growth(const Account& account) {
  return Kokkos::log(account.equity / account.start_equity);
}

struct Fill {
  double units;  ///< signed; 0 when nothing was filled
  double price;
  double fee;  ///< cash paid; negative for a rebate
  bool filled;
  bool taker;
};

struct BarOutcome {
  double log_growth;  ///< log(equity at close t+1 / equity at close t)
  Fill fill;
  bool ruined;  ///< equity fell to ruin_fraction of the start: terminal
  double traded_notional;
};

/// Target of a level under the leverage cap.
KOKKOS_INLINE_FUNCTION double capped_level(const AccountRules& rules, int level) {
  return Kokkos::fmin(Kokkos::fmax(exposure_level(level), -rules.leverage_cap), rules.leverage_cap);
}

/// True when the target of `level` is the one nearest to `present` exposure, so that nothing is traded.
KOKKOS_INLINE_FUNCTION bool is_nearest_level(const AccountRules& rules, int level, double present) {
  const double distance = Kokkos::fabs(capped_level(rules, level) - present);
  for (int other = 0; other < exposure_levels; ++other) {
    const double d = Kokkos::fabs(capped_level(rules, other) - present);
    // Half way between two levels the upper one is the nearest.
    if (d < distance || (d == distance && capped_level(rules, other) > capped_level(rules, level))) return false;
  }
  return true;
}

/// Units to trade for `action` at equity and close of bar t; 0 for no trade. The exposure after it lies between the
/// present one and a target within the leverage cap, so an order never raises exposure beyond the cap; drift may.
KOKKOS_INLINE_FUNCTION double order_units(const Account& account, const AccountRules& rules, Action action,
                                          double close) {
  const double present = account.units * close / account.equity;
  if (is_nearest_level(rules, action.exposure, present)) return 0.0;
  const double target_units = capped_level(rules, action.exposure) * account.equity / close;
  return urgency_share(action.urgency) * (target_units - account.units);
}

/// Executes an order of `units` that was decided at bar t in bar t+1. A resting order fills at its price for the maker
/// fee if the bar trades strictly through that price; if the bar already opens through it, it is marketable at the
/// opening auction: filled at the open (no spread: it meets the auction price) for the taker fee. Otherwise it is
/// cancelled at the bar's close.
KOKKOS_INLINE_FUNCTION Fill execute(const AccountRules& rules, OrderType order, double units, const Bar& decided,
                                    const Bar& next) {
  Fill fill{0.0, 0.0, 0.0, false, false};
  if (units == 0.0) return fill;
  const double side = units > 0.0 ? 1.0 : -1.0;
  double fee = rules.taker_fee;
  if (order == OrderType::market) {
    fill.price = next.open * (1.0 + side * rules.half_spread);
    fill.taker = true;
  } else {
    const double offset = order == OrderType::passive ? rules.passive_atr * decided.atr : 0.0;
    const double limit = decided.close - side * offset;
    if (side * (limit - next.open) > 0.0) {
      fill.price = next.open;
      fill.taker = true;
    } else if (side > 0.0 ? next.low < limit : next.high > limit) {
      fill.price = limit;
      fee = rules.maker_fee;
    } else {
      return fill;
    }
  }
  fill.filled = true;
  fill.units = units;
  fill.fee = Kokkos::fabs(units) * fill.price * fee;
  return fill;
}

/// Books a fill: cash, position, average entry, holding time.
KOKKOS_INLINE_FUNCTION void book(Account& account, const Fill& fill) {
  if (!fill.filled) return;
  const double before = account.units, after = before + fill.units;
  account.cash -= fill.units * fill.price + fill.fee;
  account.units = after;
  if (before == 0.0 || before * after <= 0.0) {  // opened, closed or flipped
    if (before != 0.0) ++account.closed_trades;
    account.entry_price = after == 0.0 ? 0.0 : fill.price;
    account.bars_held = 0;
  } else if (before * fill.units > 0.0) {  // increased: average the entry
    account.entry_price = (account.entry_price * before + fill.price * fill.units) / after;
  }
}

/// One bar: order, execution in `next`, mark at its close. `account` must be marked at the close of `decided`. At ruin
/// the account is closed out at exactly ruin_fraction of the start.
KOKKOS_INLINE_FUNCTION BarOutcome advance(Account& account, const AccountRules& rules, Action action,
                                          const Bar& decided, const Bar& next) {
  BarOutcome outcome;
  const double before = account.equity;
  const double units = order_units(account, rules, action, decided.close);
  outcome.fill = execute(rules, static_cast<OrderType>(action.order), units, decided, next);
  outcome.traded_notional = Kokkos::fabs(outcome.fill.units) * outcome.fill.price;
  book(account, outcome.fill);
  if (account.units != 0.0) ++account.bars_held;
  account.equity = account.cash + account.units * next.close;
  const double floor = rules.ruin_fraction * account.start_equity;
  outcome.ruined = !(account.equity > floor);
  if (outcome.ruined) {
    if (account.units != 0.0) ++account.closed_trades;
    account.cash = account.equity = floor;
    account.units = account.entry_price = 0.0;
    account.bars_held = 0;
  }
  account.peak_equity = Kokkos::fmax(account.peak_equity, account.equity);
  outcome.log_growth = Kokkos::log(account.equity / before);
  return outcome;
}

}  // namespace vulpes::market
