// Causal features of bars, their normalisation, and the bars as the account needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vulpes/io/config.hpp"
#include "vulpes/market/account.hpp"
#include "vulpes/market/bars.hpp"

namespace vulpes::market {

/// Features of every bar; row t uses bars up to and including t of its own segment only.
struct FeatureSet {
  std::vector<std::string> names;   ///< of each column
  std::vector<std::string> groups;  ///< of each column: "return", "volatility", ..., an extra column's own name
  std::vector<bool> normalised;     ///< false: fed as it is (calendar)
  std::size_t rows = 0;
  int columns = 0;
  int extra_columns = 0;             ///< how many of them, the last ones, are extra columns of the bars
  std::vector<double> values;        ///< [rows, columns] row-major; 0 in rows that are not usable
  int warm_up = 0;                   ///< first usable row of each segment, counted from its first bar
  std::vector<std::uint8_t> usable;  ///< [rows] 0 while a segment warms up
};

/// Columns, in this order (c = log close, all windows end at t):
///  return_h        c[t] - c[t-h]
///  volatility_w    sqrt(mean of the last w squared one-bar log returns)
///  mean_distance_w c[t] - mean of the last w log closes
///  range_w         mean of the last w log(high / low)
///  volume_z_w      (volume - mean) / standard deviation over w bars; 0 when that is 0
///  rsi_w           Wilder (1978): 100 * gain / (gain + loss), averages with weight 1/w; 50 when nothing moved
///  macd, macd_histogram   Appel: EMA_fast(c) - EMA_slow(c) of the *log* close, so that the price level drops out; and
///  its
///                         distance from its own signal EMA
///  bollinger_w     (c - mean) / (2 standard deviations) over w bars; 0 when that is 0
///  day_sin, day_cos, week_sin, week_cos   of the bar's start, UTC, week from Monday
///  extra columns as they are
/// Exponential averages are debiased (weights sum to 1 from the first bar on) and count as warm when the missing
/// history would weigh under 1 %. Windowed sums are made of block prefixes and suffixes, never by adding and
/// subtracting: no drift, O(1) a bar.
FeatureSet compute_features(const Bars& bars, const io::FeaturesConfig& config);

/// Per-column affine map to comparable scales, fitted on a training range only.
struct Normaliser {
  std::vector<double> median;
  std::vector<double> scale;  ///< inter-quartile range; 1 where that is 0, and for columns fed as they are
  double clip = 5.0;

  /// Fits on the usable rows of bars [begin, end). A column whose inter-quartile range is 0 scales by 1 and adds a line
  /// to `warnings` (may be null) that names it. Throws InputError when no row is usable.
  static Normaliser fit(const FeatureSet& features, std::size_t begin, std::size_t end, double clip,
                        std::vector<std::string>* warnings);

  /// clip((x - median) / scale, +-clip) as [rows, columns] row-major; rows that are not usable stay 0. Throws
  /// InputError when the number of columns differs from the one fitted.
  std::vector<float> apply(const FeatureSet& features) const;
};

/// Bars as the account needs them. ATR: exponential average (weight 1 / atr_window, debiased) of the true range
/// max(high, previous close) - min(low, previous close) within the segment.
std::vector<Bar> account_bars(const Bars& bars, const io::AccountConfig& config);

}  // namespace vulpes::market
