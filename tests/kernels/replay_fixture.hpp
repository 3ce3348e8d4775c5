// Replays and trees of every enabled back end, filled from the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vulpes/kernels/formulas/priority.hpp"
#include "vulpes/kernels/sample.hpp"

namespace vulpes::kernels::test {

template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
#define VULPES_AND_SPACE(S) , S
using EachSpace = SpaceList < void VULPES_FOR_EACH_SPACE(VULPES_AND_SPACE)
> ::Types;

template <class T>
using HostArray = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Overwrites device[first, first + host.size()).
template <class Space, class Array>
void write(const Space& space, const Array& device, std::size_t first,
           const std::vector<typename Array::value_type>& host) {
  space.fence("vulpes::test::write");
  if constexpr (is_host_space<Space>) {  // deep_copy would start a parallel region, slow on a busy machine
    std::copy(host.begin(), host.end(), device.data() + first);
  } else {
    Kokkos::deep_copy(space, Kokkos::subview(device, std::make_pair(first, first + host.size())),
                      HostArray<const typename Array::value_type>(host.data(), host.size()));
    space.fence("vulpes::test::write");
  }
}

/// Elements of a View in row-major order.
template <class Space, class Array>
auto to_host(const Space& space, const Array& device) {
  using T = typename Array::non_const_value_type;
  space.fence("vulpes::test::to_host");
  std::vector<T> host(device.span());
  if constexpr (is_host_space<Space>) {
    std::copy_n(device.data(), host.size(), host.data());
  } else {
    using Source =
        Kokkos::View<const T*, Kokkos::LayoutRight, MemoryOf<Space>, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    if (!host.empty())
      Kokkos::deep_copy(space, HostArray<T>(host.data(), host.size()), Source(device.data(), device.span()));
    space.fence("vulpes::test::to_host");
  }
  return host;
}

template <class Space, class T>
Vector<T, Space> to_device(const Space& space, const std::vector<T>& host) {
  auto device = allocate<Vector<T, Space>>(space, "vulpes::test::array", host.size());
  if (!host.empty()) write(space, device, 0, host);
  return device;
}

/// Writes leaves [0, units.size()) through `update`.
template <class Space>
void set_leaves(const Space& space, const SegmentTree<Space>& tree, const std::vector<std::uint32_t>& units) {
  std::vector<std::uint32_t> rows(units.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint32_t>(i);
  update<Space>(space, tree, to_device(space, rows), to_device(space, units), nullptr);
  space.fence("vulpes::test::set_leaves");
}

/// A tree copied to the host.
struct TreeCopy {
  std::vector<std::uint32_t> leaves, writer;
  std::vector<std::uint64_t> sums;
  TreeView view;  ///< into this copy

  template <class Space>
  TreeCopy(const Space& space, const SegmentTree<Space>& tree)
      : leaves(to_host(space, tree.leaves)),
        writer(to_host(space, tree.writer)),
        sums(to_host(space, tree.sums)),
        view(tree.view) {
    for (int l = 0; l < view.levels; ++l) view.sums[l] = sums.data() + (tree.view.sums[l] - tree.sums.data());
    view.leaves = leaves.data();
    view.writer = writer.data();
  }
  TreeCopy(const TreeCopy&) = delete;

  std::uint64_t total() const { return view.total(); }

  /// Empty if every node is the sum of its children and no update is under way, else what is wrong.
  std::string fault() const {
    std::size_t children = leaves.size();
    for (int l = 0; l < view.levels; ++l) {
      const std::size_t nodes = (children + tree_fan_out - 1) / tree_fan_out;
      for (std::size_t n = 0; n < nodes; ++n) {
        std::uint64_t sum = 0;
        for (std::size_t c = n * tree_fan_out; c < (n + 1) * tree_fan_out && c < children; ++c) {
          sum += l == 0 ? leaves[c] : view.sums[l - 1][c];
        }
        if (sum != view.sums[l][n]) {
          return "level " + std::to_string(l) + ", node " + std::to_string(n) + ": " + std::to_string(view.sums[l][n]) +
                 ", its children's sum is " + std::to_string(sum);
        }
      }
      children = nodes;
    }
    for (std::size_t i = 0; i < writer.size(); ++i) {
      if (writer[i] != 0) return "writer of leaf " + std::to_string(i) + " is left at " + std::to_string(writer[i]);
    }
    return {};
  }
};

/// Writes the next time slot of a ring, one row an account, as collection does.
template <class Space>
void add_slot(const Space& space, const ReplayRing<Space>& ring, int n_step, const std::vector<ReplayRow>& rows) {
  const std::uint64_t written = to_host(space, ring.cursor)[0];
  write(space, ring.rows, (written % ring.slots) * ring.envs, rows);
  write(space, ring.cursor, 1, {written + 1});
  close_windows(space, ring, n_step);
  space.fence("vulpes::test::add_slot");
}

/// Rows with a leaf.
template <class Space>
std::vector<std::uint32_t> valid_rows(const Space& space, const ReplayRing<Space>& ring) {
  const auto leaves = to_host(space, ring.tree.leaves);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i] > 0) rows.push_back(i);
  }
  return rows;
}

/// Buffers of a batch and the launches around them.
template <class Space>
struct SampleProblem {
  Space space;
  int batch, width;
  Draws<Space> draws;
  Matrix<float, Space> states;
  Matrix<std::uint8_t, Space> actions;
  Vector<float, Space> rewards, discounts, weights, deltas, next_returns, exposures, goals;
  Vector<std::uint8_t, Space> relabelled;
  Vector<std::uint32_t, Space> donors;
  Vector<std::uint64_t, Space> iteration;
  Kokkos::View<PriorityCounts, MemoryOf<Space>> counts;

  SampleProblem(int rows, int state_width)
      : batch(rows),
        width(state_width),
        draws(space, rows),
        states("vulpes::test::states", 2 * rows, state_width),
        actions("vulpes::test::actions", branches, rows),
        rewards("vulpes::test::rewards", rows),
        discounts("vulpes::test::discounts", rows),
        weights("vulpes::test::weights", rows),
        deltas("vulpes::test::deltas", rows),
        next_returns("vulpes::test::next_returns", rows),
        exposures("vulpes::test::exposures", rows),
        goals("vulpes::test::goals", rows),
        relabelled("vulpes::test::relabelled", rows),
        donors("vulpes::test::donors", rows),
        iteration("vulpes::test::iteration", 1),
        counts("vulpes::test::counts") {}

  void set_iteration(std::uint64_t i) { write(space, iteration, 0, {i}); }

  void sample(const ReplayRing<Space>& ring, RandomKey key = {1, 0}) {
    draw(space, ring, key, iteration.data(), draws);
    space.fence("vulpes::test::sample");
  }
  void collect_batch(const ReplayRing<Space>& ring, const MarketTable<Space>& table, const GatherRules& rules) {
    gather<Space>(space, ring, table, rules, iteration.data(), draws,
                  {states, actions, rewards, discounts, weights, next_returns, exposures, goals, relabelled, donors});
    space.fence("vulpes::test::gather");
  }
  /// Names the rows of the batch instead of drawing them.
  void choose(const ReplayRing<Space>& ring, const std::vector<std::uint32_t>& rows) {
    const auto leaves = to_host(space, ring.tree.leaves);
    const std::uint64_t written = to_host(space, ring.cursor)[0];
    std::vector<std::uint32_t> units;
    std::vector<std::uint64_t> writes;
    std::uint32_t smallest = largest_priority;
    for (std::uint32_t r : rows) {
      units.push_back(leaves[r]);
      writes.push_back(ring.view.write_of(r, written));
      smallest = std::min(smallest, leaves[r]);
    }
    write(space, draws.rows, 0, rows);
    write(space, draws.leaves, 0, units);
    write(space, draws.writes, 0, writes);
    write(space, draws.smallest, to_host(space, iteration)[0] & 1, {smallest});
  }
  void prioritise(const ReplayRing<Space>& ring, const PriorityRules& rules, const std::vector<float>& values,
                  const std::uint32_t* skip = nullptr, const std::uint8_t* relabelled_rows = nullptr) {
    write(space, deltas, 0, values);
    update_priorities(space, ring, rules, deltas.data(), skip, draws, counts, relabelled_rows);
    space.fence("vulpes::test::prioritise");
  }
  PriorityCounts count() {
    PriorityCounts host;
    Kokkos::deep_copy(
        space, Kokkos::View<PriorityCounts, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(&host), counts);
    space.fence("vulpes::test::counts");
    return host;
  }
};

/// A table whose features at bar t are t, t + 0.5 and whose close is 100 + t mod 7.
template <class Space>
MarketTable<Space> counting_table(const Space& space, int bars) {
  std::vector<float> features;
  std::vector<market::Bar> prices(bars);
  for (int t = 0; t < bars; ++t) {
    prices[t].close = 100 + t % 7;
    features.push_back(static_cast<float>(t));
    features.push_back(static_cast<float>(t) + 0.5f);
  }
  return MarketTable<Space>(space, prices, features, 2, std::vector<std::int32_t>(bars, 0));
}

}  // namespace vulpes::kernels::test
