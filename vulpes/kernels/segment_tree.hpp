// Segment tree over priorities: 32-bit fixed-point leaves, 64-bit sums, fan-out 32.
//
// Sums change by integer deltas, added from leaf to root with atomics: commutative, associative and exact, so there is no
// race and no drift, and the result does not depend on any order. A row that a batch names twice is written once, by the
// last position of the batch that names it.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes::kernels {

inline constexpr int tree_fan_out = 32;
inline constexpr int tree_max_levels = 7;  ///< 32^7 leaves

/// Plain pointers for kernels. Level 0 sums leaves; the last level is the root alone.
struct TreeView {
  std::uint32_t* leaves = nullptr;
  std::uint64_t* sums[tree_max_levels] = {};
  int levels = 0;
  std::uint32_t capacity = 0;

  KOKKOS_INLINE_FUNCTION std::uint64_t total() const { return *sums[levels - 1]; }

  /// Smallest i whose inclusive prefix sum exceeds u, for u < total: never a leaf of zero.
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
  /// Adds `delta` to every sum above leaf `row`; any number of threads at once.
  KOKKOS_INLINE_FUNCTION void add_above(std::uint32_t row, std::uint64_t delta) const {
    std::uint64_t node = row;
    for (int level = 0; level < levels; ++level) {
      node /= tree_fan_out;
      Kokkos::atomic_add(&sums[level][node], delta);
    }
  }
  KOKKOS_INLINE_FUNCTION void set(std::uint32_t row, std::uint32_t units) const {
    const std::uint64_t delta = write_leaf(row, units);
    if (delta != 0) add_above(row, delta);
  }
};

template <class Space>
struct SegmentTree {
  std::uint32_t capacity = 0;
  Vector<std::uint32_t, Space> leaves;  ///< capacity, rounded up to whole nodes; the rest stays 0
  Vector<std::uint64_t, Space> sums;    ///< all levels, one after the other
  Vector<std::uint32_t, Space> writer;  ///< [capacity] scratch of update: 0 between calls
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

/// Recomputes all sums from the leaves (after a checkpoint was loaded), one launch a level.
template <class Space>
void rebuild(const Space& space, const SegmentTree<Space>& tree);

/// The largest leaf into `largest` (device memory).
template <class Space>
void largest_leaf(const Space& space, const SegmentTree<Space>& tree, const Kokkos::View<std::uint32_t, MemoryOf<Space>>& largest);

}  // namespace vulpes::kernels
