// Simple policies to compare with, and the paired comparison of growths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "vulpes/io/config.hpp"
#include "vulpes/market/account.hpp"
#include "vulpes/market/bars.hpp"

namespace vulpes::market {

/// buy_and_hold: exposure 1 by a market order at the first bar. flat: no trade. z_score: mean reversion with
/// Bollinger's customary parameters and market orders: short when the log close is 2 standard deviations above its mean
/// over 20 bars, long when 2 below, out when it crosses the mean.
enum class Baseline { buy_and_hold, flat, z_score };

inline const char* baseline_name(Baseline b) {
  return b == Baseline::buy_and_hold ? "buy and hold" : b == Baseline::flat ? "flat" : "z-score";
}

/// Walks an account from open_account over bars [begin, end), all of one segment, through `advance`; returns the
/// end - begin - 1 log growths; shorter after ruin. Windows reach back before `begin` within the segment.
std::vector<double> run_baseline(Baseline baseline, const Bars& bars, const io::AccountConfig& account,
                                 std::size_t begin, std::size_t end);

/// Ratio of two mean growths over the same bars and the standard error of that ratio.
struct RatioEstimate {
  double ratio = 0;
  double standard_error = 0;
};

/// Mean of `agent` / mean of `reference`, paired bar by bar, by the delta method on sums over non-overlapping blocks
/// (growths are autocorrelated through the position; blocks of 256 bars are long against that). Empty unless there are
/// at least 8 whole blocks and the reference grows.
std::optional<RatioEstimate> growth_ratio(const std::vector<double>& agent, const std::vector<double>& reference,
                                          std::size_t block = 256);

}  // namespace vulpes::market
