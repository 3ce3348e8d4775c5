// The replay: a ring [time slot][env] of rows that point into the market table, nothing copied from it.
#pragma once

#include "vulpes/kernels/segment_tree.hpp"

namespace vulpes::kernels {

/// The account as the network saw it, before or after a decision.
struct StoredAccount {
  float exposure, unrealised, drawdown;
  float log_growth;  ///< since the episode's start
};

/// One decision of one account. The after-state is stored, so a row needs no successor.
struct ReplayRow {
  static constexpr std::uint8_t terminal = 1;   ///< ruined
  static constexpr std::uint8_t truncated = 2;  ///< last of its episode, but its state has a value
  static constexpr std::uint8_t ended = terminal | truncated;

  std::uint32_t bar;  ///< the decision's
  std::uint8_t action[3];
  std::uint8_t flags;
  std::uint16_t episode_offset;  ///< decisions of the episode before this one
  std::uint16_t bars_held_before, bars_held_after;
  std::uint16_t reserved;
  float goal;
  StoredAccount before, after;
};
static_assert(sizeof(ReplayRow) == 52);

/// Plain pointers for kernels; row index = slot * envs + env.
struct RingView {
  ReplayRow* rows = nullptr;
  std::uint64_t* cursor = nullptr;  ///< [0]: slots written so far; [1]: the same after the slot being written
  std::uint32_t envs = 0, slots = 0;

  KOKKOS_INLINE_FUNCTION std::uint32_t row(std::uint64_t slot_count, std::uint32_t env) const {
    return static_cast<std::uint32_t>(slot_count % slots) * envs + env;
  }
  /// Which write (counted from 0) its slot holds after `written` slots; no_write if none yet.
  static constexpr std::uint64_t no_write = ~std::uint64_t(0);
  KOKKOS_INLINE_FUNCTION std::uint64_t write_of(std::uint32_t index, std::uint64_t written) const {
    const std::uint64_t slot = index / envs;
    return slot < written ? slot + (written - 1 - slot) / slots * slots : no_write;
  }
};

template <class Space>
struct ReplayRing {
  int envs = 0, slots = 0;
  Vector<ReplayRow, Space> rows;
  Vector<std::uint64_t, Space> cursor;
  SegmentTree<Space> tree;
  Kokkos::View<std::uint32_t, MemoryOf<Space>> largest;  ///< leaf of new rows
  RingView view;

  ReplayRing() = default;
  /// `rows` is rounded up to whole slots; at least `least_slots`.
  ReplayRing(const Space& space, std::int64_t rows, int envs, int least_slots);
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(envs) * slots; }
  std::size_t bytes() const { return rows.span() * sizeof(ReplayRow) + tree.bytes(); }
};

/// Sets `largest` to the largest priority in the buffer, 1 when it is empty.
template <class Space>
void refresh_new_priority(const Space& space, const ReplayRing<Space>& ring);

/// After all accounts wrote the slot `cursor[0]` (and cursor[1] = cursor[0] + 1): gives a leaf to every row whose
/// n-step window is now closed (n bars, or the episode's end, which closes all shorter ones), takes the leaf of the
/// rows that were overwritten and whose windows are still open, and advances the cursor.
template <class Space>
void close_windows(const Space& space, const ReplayRing<Space>& ring, int n_step);

}  // namespace vulpes::kernels
