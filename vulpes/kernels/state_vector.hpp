// The network's input for an account at a bar, the same in collection, backtest and decision.
#pragma once

#include "vulpes/core/pack.hpp"
#include "vulpes/kernels/formulas/account_state.hpp"
#include "vulpes/kernels/market_table.hpp"
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

/// Writes s = features at the bar, the account's own inputs, zero padding; `width` floats. `goal_gap` as from
/// formulas/goal.hpp.
struct StateVector {
  const market::Bar* bars;
  const float* features;
  int feature_columns, width, window;

  template <class Space>
  static StateVector of(const MarketTable<Space>& table, const NetworkShape& shape, std::uint32_t window) {
    return {table.bars.data(), table.features.data(), table.feature_columns, shape.state, static_cast<int>(window)};
  }

  KOKKOS_INLINE_FUNCTION void write(const market::Account& account, std::uint32_t bar, float goal_gap,
                                    float* state) const {
    for (int j = 0; j < feature_columns; ++j) write_feature(j, bar, state);
    write_account(account, bar, goal_gap, state);
  }
  /// In two parts, for a device's lanes.
  KOKKOS_INLINE_FUNCTION void write_feature(int j, std::uint32_t bar, float* state) const {
    state[j] = features[static_cast<std::int64_t>(bar) * feature_columns + j];
  }
  KOKKOS_INLINE_FUNCTION void write_account(const market::Account& account, std::uint32_t bar, float goal_gap,
                                            float* state) const {
    const double close = bars[bar].close;
    account_inputs(static_cast<float>(market::exposure(account, close)),
                   static_cast<float>(market::unrealised_return(account, close)), account.bars_held,
                   static_cast<float>(market::drawdown(account)), goal_gap, window, state + feature_columns);
    for (int j = feature_columns + account_input_count; j < width; ++j) state[j] = 0.0f;
  }
  /// The features of a tile's rows, of which the first `count` exist; `bar_of(row)`. A device's lanes take a feature
  /// each, a host a row whole.
  template <class Tile, class BarOf>
  KOKKOS_INLINE_FUNCTION void write_features(const Tile& tile, int count, const BarOf& bar_of, float* states) const {
    const int pieces = Tile::on_device ? feature_columns : 1;
    tile.items(pieces, [&](int piece, int row0) {
      for (int i = row0; i < row0 + lanes<typename Tile::Value> && i < count; ++i) {
        float* state = states + static_cast<std::int64_t>(i) * width;
        const std::uint32_t bar = bar_of(i);
        for (int j = piece; j < feature_columns; j += pieces) write_feature(j, bar, state);
      }
    });
  }
};

}  // namespace vulpes::kernels
