// What the agent looks at: the change of Q under interventions on groups of its inputs (formulas/causal_delta.hpp).
#pragma once

#include <string>
#include <vector>

#include "vulpes/kernels/formulas/support.hpp"
#include "vulpes/kernels/network.hpp"
#include "vulpes/market/features.hpp"

namespace vulpes::kernels {

/// Inputs that an intervention sets together.
struct FeatureGroups {
  std::vector<std::string> names;  ///< G, all different
  std::vector<std::int32_t> of;    ///< [S] group of each state column
};

/// returns, volatility, means (distance from them), range, volume, oscillators (RSI, MACD, Bollinger), calendar, each
/// extra column by its own name, and last the account's own inputs with the padding behind them; groups without a
/// column are left out. `state_width`: S.
FeatureGroups feature_groups(const market::FeatureSet& features, int state_width);

/// Buffers of the measurement, and its results.
template <class Space>
struct CausalBuffers {
  int groups = 0;                         ///< G
  int rows = 0;                           ///< M
  Vector<std::int32_t, Space> group_of;   ///< [S]
  Activations<Space, float> activations;  ///< (G + 1) M rows: as they are, then under each intervention
  Matrix<float, Space> base, q;           ///< work space of the action values
  Matrix<double, Space> records;          ///< [records, G] delta_g; NaN: undefined

  CausalBuffers() = default;
  /// `rows`: M, at most the batch. `records`: measurements that are kept, a ring.
  CausalBuffers(const Space& space, const NetworkShape& shape, const FeatureGroups& groups, int rows, int records);
};

/// Measures on M rows that lie evenly over `states` [B, S], the states of a batch; donors are all of its rows. Writes
/// row
/// `*iteration / every % records` of `buffers.records` and buffers alone: nothing that training reads. `iteration` is
/// in device memory, `parameters` a buffer of network.layout, `output_bias` its output bias. Throws RunError when the
/// batch has less than M or 2 rows.
template <class Space>
void causal_delta(const Space& space, const Network& network, const float* parameters, const float* output_bias,
                  const Support<float>& support, RandomKey key, const std::uint64_t* iteration, std::int64_t every,
                  MatrixRef<const float, Space> states, const CausalBuffers<Space>& buffers);

}  // namespace vulpes::kernels
