// The trading account: one device-callable step that collection, backtest, reference optimum and labels share.
//
// A decision is made after bar t closes and executed in bar t + 1; equity marks at its close. Sizes are in units, from the
// equity and the close at t. All arithmetic is in double.
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"
#include "vulpes/io/config.hpp"

namespace vulpes::market {

/// What the account needs of a bar; prices in quote currency, ATR in price units.
struct Bar {
  double open, high, low, close, atr;
};

inline constexpr int exposure_levels = 9;
inline constexpr int order_types = 3;
inline constexpr int urgencies = 3;

enum class OrderType : std::uint8_t { market = 0, limit = 1, passive = 2 };

/// One choice a branch: exposure level -1, -0.75 ... 1, order type, urgency (all, 1/2 or 1/4 of the way).
struct Action {
  std::uint8_t exposure, order, urgency;
};

KOKKOS_INLINE_FUNCTION double exposure_of_level(int level) { return -1.0 + 0.25 * level; }
/// The level nearest to an exposure; the lower one in the middle.
KOKKOS_INLINE_FUNCTION int nearest_level(double exposure) {
  const double level = Kokkos::ceil((exposure + 1.0) * 4.0 - 0.5);
  return level < 0.0 ? 0 : (level > exposure_levels - 1 ? exposure_levels - 1 : static_cast<int>(level));
}
KOKKOS_INLINE_FUNCTION double urgency_fraction(int urgency) { return urgency == 0 ? 1.0 : (urgency == 1 ? 0.5 : 0.25); }

/// Costs and limits as fractions; see io::AccountConfig.
struct AccountRules {
  double taker_fee, maker_fee;  ///< of traded notional; a negative maker fee is a rebate
  double half_spread;           ///< of price, paid by market orders
  double passive_atr;           ///< distance of passive orders from the close, in ATR
  double leverage_cap;          ///< largest absolute exposure that an order may reach
  double ruin_fraction;         ///< of the start equity: at or below it the account is ruined
  double initial_equity;
};

inline AccountRules make_account_rules(const io::AccountConfig& c) {
  constexpr double bp = 1e-4;
  return {c.taker_fee_bp * bp, c.maker_fee_bp * bp, c.half_spread_bp * bp, c.passive_atr, c.leverage_cap, c.ruin_fraction,
          c.initial_equity};
}

struct Account {
  double cash, units;
  double entry_price;  ///< average price of the open position, 0 when flat
  double equity;       ///< at the last close
  double peak_equity, start_equity;
  std::int32_t bars_held;  ///< bars since the position was opened or turned, 0 when flat
  std::int32_t reserved;
};

KOKKOS_INLINE_FUNCTION Account open_account(const AccountRules& rules) {
  return {rules.initial_equity, 0.0, 0.0, rules.initial_equity, rules.initial_equity, rules.initial_equity, 0, 0};
}

/// Position value over equity at `price`.
KOKKOS_INLINE_FUNCTION double exposure(const Account& a, double price) { return a.units * price / a.equity; }
/// Open profit over equity.
KOKKOS_INLINE_FUNCTION double unrealised_return(const Account& a, double price) { return a.units * (price - a.entry_price) / a.equity; }
/// 1 - equity / peak.
KOKKOS_INLINE_FUNCTION double drawdown(const Account& a) { return 1.0 - a.equity / a.peak_equity; }
/// log(equity / start equity).
KOKKOS_INLINE_FUNCTION double log_growth(const Account& a) { return Kokkos::log(a.equity / a.start_equity); }

struct Fill {
  double units;  ///< bought (sold: negative)
  double price, fee;
  bool filled, taker;
};

struct BarOutcome {
  double log_growth;  ///< log(equity after / equity before)
  double traded_notional;
  Fill fill;
  bool ruined;
};

/// Units to trade for an action decided at close t; 0 for no trade. A target that is the level nearest to the present
/// exposure means no trade: exposure drifts. An order may not raise the absolute exposure beyond the cap.
KOKKOS_INLINE_FUNCTION double order_units(const Account& a, const AccountRules& rules, Action action, double close) {
  const double now = exposure(a, close);
  if (static_cast<int>(action.exposure) == nearest_level(now)) return 0.0;
  const double cap = rules.leverage_cap;
  double target = exposure_of_level(action.exposure);
  target = target > cap ? cap : (target < -cap ? -cap : target);
  const double wanted = now + (target - now) * urgency_fraction(action.urgency);
  return wanted * a.equity / close - a.units;
}

/// How an order for `units` decided at the close of `decided` is executed in `next`.
/// Market: at the open plus or minus half the spread, taker fee. Limit (at the close) and passive (at the close minus or
/// plus passive_atr ATR): at their price with the maker fee, only if the bar trades strictly through it; when it opens
/// through it, at the open with the taker fee (no spread: the order was resting); else cancelled at the close.
KOKKOS_INLINE_FUNCTION Fill execute(const AccountRules& rules, OrderType type, double units, const Bar& decided, const Bar& next) {
  Fill fill{0.0, 0.0, 0.0, false, false};
  if (units == 0.0) return fill;
  const double side = units > 0.0 ? 1.0 : -1.0;
  if (type == OrderType::market) {
    fill = {units, next.open * (1.0 + side * rules.half_spread), 0.0, true, true};
  } else {
    const double limit = type == OrderType::limit ? decided.close : decided.close - side * rules.passive_atr * decided.atr;
    const bool gapped = side > 0.0 ? next.open < limit : next.open > limit;
    const bool through = side > 0.0 ? next.low < limit : next.high > limit;
    if (gapped) fill = {units, next.open, 0.0, true, true};
    else if (through && limit > 0.0) fill = {units, limit, 0.0, true, false};
  }
  if (fill.filled) fill.fee = Kokkos::abs(units) * fill.price * (fill.taker ? rules.taker_fee : rules.maker_fee);
  return fill;
}

/// Books a fill: cash, units, average entry price, age of the position.
KOKKOS_INLINE_FUNCTION void book(Account& a, const Fill& fill) {
  const double before = a.units, after = before + fill.units;
  a.cash -= fill.units * fill.price + fill.fee;
  a.units = after;
  if (after == 0.0) {
    a.entry_price = 0.0;
    a.bars_held = 0;
  } else if (before * after <= 0.0) {  // opened or turned
    a.entry_price = fill.price;
    a.bars_held = 0;
  } else if (Kokkos::abs(after) > Kokkos::abs(before)) {
    a.entry_price = (before * a.entry_price + fill.units * fill.price) / after;
  }
}

/// One bar: decide at the close of `decided` (bar t), execute in and mark at the close of `next` (bar t + 1). Ruin sets the
/// equity to ruin_fraction of the start, in cash, before the logarithm is taken.
KOKKOS_INLINE_FUNCTION BarOutcome advance(Account& a, const AccountRules& rules, Action action, const Bar& decided, const Bar& next) {
  const double before = a.equity;
  BarOutcome outcome{};
  outcome.fill = execute(rules, static_cast<OrderType>(action.order), order_units(a, rules, action, decided.close), decided, next);
  if (outcome.fill.filled) {
    book(a, outcome.fill);
    outcome.traded_notional = Kokkos::abs(outcome.fill.units) * outcome.fill.price;
  }
  if (a.units != 0.0) ++a.bars_held;
  a.equity = a.cash + a.units * next.close;
  const double floor = rules.ruin_fraction * a.start_equity;
  if (!(a.equity > floor)) {
    a.equity = a.cash = floor;
    a.units = a.entry_price = 0.0;
    a.bars_held = 0;
    outcome.ruined = true;
  }
  if (a.equity > a.peak_equity) a.peak_equity = a.equity;
  outcome.log_growth = Kokkos::log(a.equity / before);
  return outcome;
}

}  // namespace vulpes::market
