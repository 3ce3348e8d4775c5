// Bars and features of all series in device memory: what collection, replay and backtest gather from.
#pragma once

#include <vector>

#include "vulpes/core/spaces.hpp"
#include "vulpes/market/account.hpp"

namespace vulpes::kernels {

/// Row i belongs to bar i. Bars of one segment are consecutive; nothing crosses a segment's end.
template <class Space>
struct MarketTable {
  Vector<market::Bar, Space> bars;
  Matrix<float, Space> features;             ///< [bars, F], normalised
  Vector<std::uint32_t, Space> segment_end;  ///< first bar after the bar's segment
  int feature_columns = 0;

  MarketTable() = default;
  /// Copies host tables to the device. `features` is row-major [bars, columns].
  MarketTable(const Space& space, const std::vector<market::Bar>& bars, const std::vector<float>& features, int columns,
              const std::vector<std::int32_t>& segments);
};

/// Bars at which an episode may start, as intervals over which a uniform draw is made.
struct StartInterval {
  std::uint32_t begin;   ///< first bar
  std::uint32_t before;  ///< starts in the intervals before this one
  std::uint32_t count;
};

}  // namespace vulpes::kernels
