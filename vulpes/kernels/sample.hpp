// Prioritised sampling: draw rows, gather their transitions; and the priorities' way back.
#pragma once

#include "vulpes/core/random.hpp"
#include "vulpes/core/schedule.hpp"
#include "vulpes/kernels/columns.hpp"
#include "vulpes/kernels/formulas/goal.hpp"
#include "vulpes/kernels/formulas/hindsight.hpp"
#include "vulpes/kernels/formulas/n_step_return.hpp"
#include "vulpes/kernels/market_table.hpp"
#include "vulpes/kernels/network.hpp"
#include "vulpes/kernels/replay_rows.hpp"

namespace vulpes::kernels {

/// What a draw leaves for the gather and for the priorities' way back.
template <class Space>
struct Draws {
  Vector<std::uint32_t, Space> rows;      ///< [B] index in the ring
  Vector<std::uint64_t, Space> writes;    ///< [B] which write of its slot the row is
  Vector<std::uint32_t, Space> leaves;    ///< [B] priority units
  Vector<std::uint32_t, Space> smallest;  ///< [2] smallest leaf of the batch, by parity of the iteration
  Vector<std::uint32_t, Space> units;     ///< [B] new priorities
  Vector<std::uint32_t, Space> targets;   ///< [B] rows to update, no_row where dropped
  Draws() = default;
  Draws(const Space& space, int batch);
};

/// Draws B rows, one from each of B equal parts of the total priority. One launch. From an empty tree: row 0 with leaf
/// 0, to which `gather` gives weight 0 and `update_priorities` no priority.
template <class Space>
void draw(const Space& space, const ReplayRing<Space>& ring, RandomKey key, const std::uint64_t* iteration,
          const Draws<Space>& draws);

/// The transitions of a batch.
template <class Space>
struct Batch {
  MatrixRef<float, Space> states;          ///< [2B, S]: s, then s'
  MatrixRef<std::uint8_t, Space> actions;  ///< [D, B]
  VectorRef<float, Space> rewards;         ///< n-step R
  VectorRef<float, Space> discounts;       ///< gamma^k, 0 after a terminal
  VectorRef<float, Space> weights;         ///< importance weights
  // [B] each; those without memory are not written.
  VectorRef<float, Space> next_returns = {};       ///< close[t + 1] / close[t] - 1 of the row's bar t
  VectorRef<float, Space> exposures = {};          ///< before the decision
  VectorRef<float, Space> goals = {};              ///< in effect: the episode's own or the donor's growth
  VectorRef<std::uint8_t, Space> relabelled = {};  ///< 1: the goal is the donor's
  VectorRef<std::uint32_t, Space> donors = {};     ///< ring index of the donor; no_row where there is none
};

struct GatherRules {
  RewardRules reward;
  GoalRules goal;
  HindsightRules hindsight;
  float gamma = 0.95f;
  int n_step = 1;
  std::uint32_t window = 0;  ///< scale of bars held
  Schedule beta;
};

/// Fills the batch from the drawn rows, `hindsight.share` of them with another goal. One launch; also resets the other
/// parity's smallest leaf.
template <class Space>
void gather(const Space& space, const ReplayRing<Space>& ring, const MarketTable<Space>& table,
            const GatherRules& rules, const std::uint64_t* iteration, const Draws<Space>& draws,
            const Batch<Space>& batch);

struct PriorityRules {
  double alpha = 0.5, epsilon = 1e-3;
  bool relabelled_too = false;  ///< rows with a hindsight goal write their priority back
};

/// Counts of unusual priorities since the start; in device memory.
struct PriorityCounts {
  std::uint64_t saturated = 0, rejected = 0, dropped = 0;
};

/// New priorities of the drawn rows from their deltas [B]: a NaN or negative delta is rejected and counted, a row that
/// was overwritten since the draw is dropped and counted. `relabelled` [B], if given: rows that are ignored unless
/// rules.relabelled_too. Two launches. A no-op when `*skip` is not 0.
template <class Space>
void update_priorities(const Space& space, const ReplayRing<Space>& ring, const PriorityRules& rules,
                       const float* deltas, const std::uint32_t* skip, const Draws<Space>& draws,
                       const Kokkos::View<PriorityCounts, MemoryOf<Space>>& counts,
                       const std::uint8_t* relabelled = nullptr);

}  // namespace vulpes::kernels
