// Contract: between launches every node equals the sum of its children, and `writer` is all zero.
#include "vulpes/kernels/segment_tree.hpp"

#include "vulpes/core/errors.hpp"

namespace vulpes::kernels {
namespace {

/// Writes the leaves of a chunk of a batch. The deltas of the 32 nodes below the root are summed in the chunk first:
/// every row of the batch changes one of them and the root.
struct ChunkWriter {
  template <class Space>
  using Scratch =
      Kokkos::View<std::uint64_t*, typename Space::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  static constexpr int chunk = 128;
  TreeView tree;
  const std::uint32_t *rows, *units, *skip;
  std::int64_t count;

  /// Writes the leaf of position k if k is its writer and calls `add_top(node, delta)`.
  template <class AddTop>
  KOKKOS_INLINE_FUNCTION void write(std::int64_t k, const AddTop& add_top) const {
    const std::uint32_t row = rows[k];
    if (row == no_row || !tree.take(row, k)) return;
    const std::uint64_t delta = tree.write_leaf(row, units[k]);
    if (delta != 0) add_top(tree.add_below_top(row, delta), delta);
  }
  KOKKOS_INLINE_FUNCTION void flush(int node, std::uint64_t delta) const {
    if (delta != 0) Kokkos::atomic_add(&tree.sums[tree.top_level()][node], delta);
  }
  KOKKOS_INLINE_FUNCTION void flush_root(std::uint64_t delta) const {
    if (delta != 0 && tree.levels > 1) Kokkos::atomic_add(tree.sums[tree.levels - 1], delta);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t end(std::int64_t c) const {
    return (c + 1) * chunk < count ? (c + 1) * chunk : count;
  }

  void serial(std::int64_t c) const {
    if (skip && *skip) return;
    std::uint64_t top[tree_fan_out] = {}, all = 0;
    for (std::int64_t k = c * chunk; k < end(c); ++k) {
      write(k, [&](std::uint32_t node, std::uint64_t delta) { top[node] += delta; });
    }
    for (int i = 0; i < tree_fan_out; ++i) {
      flush(i, top[i]);
      all += top[i];
    }
    flush_root(all);
  }

  /// Scratch: the sums of the 32 nodes and of the root.
  template <class Member>
  KOKKOS_INLINE_FUNCTION void team(const Member& member) const {
    if (skip && *skip) return;  // the same for all threads
    const Scratch<typename Member::execution_space> top(member.team_scratch(0), tree_fan_out + 1);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(member, tree_fan_out + 1), [&](int i) { top[i] = 0; });
    member.team_barrier();
    const std::int64_t c = member.league_rank();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(member, static_cast<int>(end(c) - c * chunk)), [&](int i) {
      write(c * chunk + i, [&](std::uint32_t node, std::uint64_t delta) { Kokkos::atomic_add(&top[node], delta); });
    });
    member.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(member, tree_fan_out), [&](int i) {
      flush(i, top[i]);
      if (top[i] != 0) Kokkos::atomic_add(&top[tree_fan_out], top[i]);
    });
    member.team_barrier();
    Kokkos::single(Kokkos::PerTeam(member), [&] { flush_root(top[tree_fan_out]); });
  }
};

}  // namespace

template <class Space>
SegmentTree<Space>::SegmentTree(const Space& space, std::uint32_t rows) : capacity(rows) {
  throw_if<InputError>(rows == 0, "segment tree: no rows");
  std::vector<std::size_t> sizes;
  std::size_t nodes = rows, total = 0;
  do {
    nodes = (nodes + tree_fan_out - 1) / tree_fan_out;
    sizes.push_back(nodes);
    // Whole nodes of the level above, so that a search may read all children.
    total += (nodes + tree_fan_out - 1) / tree_fan_out * tree_fan_out;
  } while (nodes > 1);
  leaves =
      allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::segment_tree::leaves", sizes[0] * tree_fan_out);
  sums = allocate_zeroed<Vector<std::uint64_t, Space>>(space, "vulpes::segment_tree::sums", total);
  writer = allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::segment_tree::writer", rows);
  view.leaves = leaves.data();
  view.writer = writer.data();
  view.levels = static_cast<int>(sizes.size());
  view.capacity = rows;
  std::size_t offset = 0;
  for (std::size_t l = 0; l < sizes.size(); ++l) {
    view.sums[l] = sums.data() + offset;
    offset += (sizes[l] + tree_fan_out - 1) / tree_fan_out * tree_fan_out;
  }
}

template <class Space>
void update(const Space& space, const SegmentTree<Space>& tree, const VectorRef<const std::uint32_t, Space>& rows,
            const VectorRef<const std::uint32_t, Space>& units, const std::uint32_t* skip) {
  const TreeView view = tree.view;
  const std::uint32_t* row_of = rows.data();
  Kokkos::parallel_for(
      "vulpes::segment_tree::propose", range(space, static_cast<std::int64_t>(rows.extent(0))),
      KOKKOS_LAMBDA(std::int64_t k) {
        if ((skip && *skip) || row_of[k] == no_row) return;
        view.propose(row_of[k], k);
      });
  write_proposed<Space>(space, tree, rows, units, skip);
}

template <class Space>
void write_proposed(const Space& space, const SegmentTree<Space>& tree,
                    const VectorRef<const std::uint32_t, Space>& rows,
                    const VectorRef<const std::uint32_t, Space>& units, const std::uint32_t* skip) {
  const auto count = static_cast<std::int64_t>(rows.extent(0));
  const ChunkWriter writer{tree.view, rows.data(), units.data(), skip, count};
  const std::int64_t chunks = (count + ChunkWriter::chunk - 1) / ChunkWriter::chunk;
  if constexpr (is_host_space<Space>) {
    Kokkos::parallel_for("vulpes::segment_tree::update", range(space, chunks),
                         [=](std::int64_t c) { writer.serial(c); });
  } else {
    auto policy = teams(space, static_cast<int>(chunks), ChunkWriter::chunk);
    policy.set_scratch_size(0, Kokkos::PerTeam(ChunkWriter::Scratch<Space>::shmem_size(tree_fan_out + 1)));
    using Member = typename Kokkos::TeamPolicy<Space>::member_type;
    Kokkos::parallel_for(
        "vulpes::segment_tree::update", policy, KOKKOS_LAMBDA(const Member& team) { writer.team(team); });
  }
}

template <class Space>
void rebuild(const Space& space, const SegmentTree<Space>& tree) {
  const TreeView view = tree.view;
  std::int64_t nodes = (static_cast<std::int64_t>(view.capacity) + tree_fan_out - 1) / tree_fan_out;
  for (int level = 0; level < view.levels; ++level) {
    Kokkos::parallel_for(
        "vulpes::segment_tree::rebuild", range(space, nodes), KOKKOS_LAMBDA(std::int64_t n) {
          std::uint64_t sum = 0;
          for (int c = 0; c < tree_fan_out; ++c) {
            sum += level == 0 ? view.leaves[n * tree_fan_out + c] : view.sums[level - 1][n * tree_fan_out + c];
          }
          view.sums[level][n] = sum;
        });
    nodes = (nodes + tree_fan_out - 1) / tree_fan_out;
  }
}

template <class Space>
void largest_leaf(const Space& space, const SegmentTree<Space>& tree,
                  const Kokkos::View<std::uint32_t, MemoryOf<Space>>& largest) {
  const std::uint32_t* leaves = tree.leaves.data();
  const auto nodes = static_cast<std::int64_t>(tree.leaves.extent(0)) / tree_fan_out;
  Kokkos::parallel_reduce(
      "vulpes::segment_tree::largest_leaf", range(space, nodes),
      KOKKOS_LAMBDA(std::int64_t n, std::uint32_t & m) {
        std::uint32_t most = 0;
        for (int c = 0; c < tree_fan_out; ++c) {
          const std::uint32_t leaf = leaves[n * tree_fan_out + c];
          most = leaf > most ? leaf : most;
        }
        m = most > m ? most : m;
      },
      Kokkos::Max<std::uint32_t, MemoryOf<Space>>(largest));
}

#define INSTANTIATE(S)                                                                                       \
  template struct SegmentTree<S>;                                                                            \
  template void update<S>(const S&, const SegmentTree<S>&, const VectorRef<const std::uint32_t, S>&,         \
                          const VectorRef<const std::uint32_t, S>&, const std::uint32_t*);                   \
  template void write_proposed<S>(const S&, const SegmentTree<S>&, const VectorRef<const std::uint32_t, S>&, \
                                  const VectorRef<const std::uint32_t, S>&, const std::uint32_t*);           \
  template void rebuild<S>(const S&, const SegmentTree<S>&);                                                 \
  template void largest_leaf<S>(const S&, const SegmentTree<S>&, const Kokkos::View<std::uint32_t, MemoryOf<S>>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
