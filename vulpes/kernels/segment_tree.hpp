// Segment tree over priorities: 32-bit fixed-point leaves, 64-bit sums, fan-out 32.
//
// Sums change by integer deltas, added from leaf to root with atomics: commutative, associative and exact, so there is
// no race and no drift, and the result does not depend on any order. A row that a batch names twice is written once, by
// the last position of the batch that names it.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes::kernels {

inline constexpr int tree_fan_out = 32;
inline constexpr int tree_max_levels = 7;  ///< 32^7 leaves

/// Plain pointers for kernels. Level 0 sums leaves; the last level is the root alone.
struct TreeView {
  std::uint32_t* leaves = nullptr;
  std::uint32_t* writer = nullptr;  ///< 1 + the batch position that writes the leaf; 0 between updates
  std::uint64_t* sums[tree_max_levels] = {};
  int levels = 0;
  std::uint32_t capacity = 0;

  KOKKOS_INLINE_FUNCTION std::uint64_t total() const { return *sums[levels - 1]; }

  /// Smallest i whose inclusive prefix sum exceeds u: never a leaf of zero. u must be below the total.
  KOKKOS_INLINE_FUNCTION std::uint32_t find(std::uint64_t u) const {
    std::uint64_t node = 0;
    for (int level = levels - 2; level >= 0; --level) {
      node *= tree_fan_out;
      while (u >= sums[level][node]) u -= sums[level][node++];
    }
    node *= tree_fan_out;
    while (u >= leaves[node]) u -= leaves[node++];
    return static_cast<std::uint32_t>(node);
  }

  /// Writes a leaf and returns the change of the sums above it (modulo 2^64). Only one writer a leaf at a time.
  KOKKOS_INLINE_FUNCTION std::uint64_t write_leaf(std::uint32_t row, std::uint32_t units) const {
    const std::uint32_t old = leaves[row];
    leaves[row] = units;
    return static_cast<std::uint64_t>(units) - static_cast<std::uint64_t>(old);
  }
  /// The level whose nodes, 32 at most, have the root as parent (or are the root).
  KOKKOS_INLINE_FUNCTION int top_level() const { return levels > 1 ? levels - 2 : 0; }
  /// Adds `delta` to the sums above leaf `row` and below the top level, and returns the node there; any number of
  /// threads at once.
  KOKKOS_INLINE_FUNCTION std::uint32_t add_below_top(std::uint32_t row, std::uint64_t delta) const {
    std::uint32_t node = row / tree_fan_out;
    for (int level = 0; level < top_level(); ++level, node /= tree_fan_out)
      Kokkos::atomic_add(&sums[level][node], delta);
    return node;
  }
  KOKKOS_INLINE_FUNCTION void set(std::uint32_t row, std::uint32_t units) const {
    const std::uint64_t delta = write_leaf(row, units);
    if (delta == 0) return;
    Kokkos::atomic_add(&sums[top_level()][add_below_top(row, delta)], delta);
    if (levels > 1) Kokkos::atomic_add(sums[levels - 1], delta);
  }

  /// Enters position k of a batch as the writer of `row`; the last position wins.
  KOKKOS_INLINE_FUNCTION void propose(std::uint32_t row, std::int64_t k) const {
    Kokkos::atomic_max(&writer[row], static_cast<std::uint32_t>(k + 1));
  }
  /// In a later launch: is k the writer of `row`? Clears the entry for the next batch.
  KOKKOS_INLINE_FUNCTION bool take(std::uint32_t row, std::int64_t k) const {
    if (Kokkos::atomic_load(&writer[row]) != static_cast<std::uint32_t>(k + 1)) return false;
    Kokkos::atomic_store(&writer[row], 0u);  // what the losers compare with is larger than 0
    return true;
  }
};

template <class Space>
struct SegmentTree {
  std::uint32_t capacity = 0;
  Vector<std::uint32_t, Space> leaves;  ///< capacity, rounded up to whole nodes; the rest stays 0
  Vector<std::uint64_t, Space> sums;    ///< all levels, one after the other
  Vector<std::uint32_t, Space> writer;  ///< [capacity] scratch of update
  TreeView view;

  SegmentTree() = default;
  SegmentTree(const Space& space, std::uint32_t capacity);
  /// Bytes in device memory.
  std::size_t bytes() const { return leaves.span() * 4 + sums.span() * 8 + writer.span() * 4; }
};

/// In a list of rows: leave this position out.
inline constexpr std::uint32_t no_row = 0xffffffffu;

/// Writes leaf rows[k] := units[k] in two launches; where several k name a row, the last one wins. A no-op when `*skip`
/// (device memory, may be null) is not 0.
template <class Space>
void update(const Space& space, const SegmentTree<Space>& tree, const VectorRef<const std::uint32_t, Space>& rows,
            const VectorRef<const std::uint32_t, Space>& units, const std::uint32_t* skip);

/// The second launch of `update`, for a kernel that has called `propose` for each of `rows` itself.
template <class Space>
void write_proposed(const Space& space, const SegmentTree<Space>& tree,
                    const VectorRef<const std::uint32_t, Space>& rows,
                    const VectorRef<const std::uint32_t, Space>& units, const std::uint32_t* skip);

/// Recomputes all sums from the leaves (after a checkpoint was loaded), one launch a level.
template <class Space>
void rebuild(const Space& space, const SegmentTree<Space>& tree);

/// The largest leaf into `largest` (device memory).
template <class Space>
void largest_leaf(const Space& space, const SegmentTree<Space>& tree,
                  const Kokkos::View<std::uint32_t, MemoryOf<Space>>& largest);

}  // namespace vulpes::kernels
