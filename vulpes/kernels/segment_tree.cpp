// Contract: between launches every node equals the sum of its children, and `writer` is all zero.
#include "vulpes/kernels/segment_tree.hpp"

#include "vulpes/core/errors.hpp"

namespace vulpes::kernels {

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
  leaves = allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::segment_tree::leaves", sizes[0] * tree_fan_out);
  sums = allocate_zeroed<Vector<std::uint64_t, Space>>(space, "vulpes::segment_tree::sums", total);
  writer = allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::segment_tree::writer", rows);
  view.leaves = leaves.data();
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
  std::uint32_t* writer = tree.writer.data();
  const std::uint32_t *row_of = rows.data(), *unit_of = units.data();
  const auto count = static_cast<std::int64_t>(rows.extent(0));
  Kokkos::parallel_for(
      "vulpes::segment_tree::choose_writers", range(space, count), KOKKOS_LAMBDA(std::int64_t k) {
        if ((skip && *skip) || row_of[k] == no_row) return;
        Kokkos::atomic_max(&writer[row_of[k]], static_cast<std::uint32_t>(k + 1));
      });
  Kokkos::parallel_for(
      "vulpes::segment_tree::update", range(space, count), KOKKOS_LAMBDA(std::int64_t k) {
        if ((skip && *skip) || row_of[k] == no_row) return;
        const std::uint32_t row = row_of[k];
        if (Kokkos::atomic_load(&writer[row]) != static_cast<std::uint32_t>(k + 1)) return;
        Kokkos::atomic_store(&writer[row], 0u);  // the others compare with their own, larger than 0
        view.set(row, unit_of[k]);
      });
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
void largest_leaf(const Space& space, const SegmentTree<Space>& tree, const Kokkos::View<std::uint32_t, MemoryOf<Space>>& largest) {
  const std::uint32_t* leaves = tree.leaves.data();
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_reduce(
      "vulpes::segment_tree::largest_leaf", Policy(space, 0, static_cast<std::int64_t>(tree.capacity)),
      KOKKOS_LAMBDA(std::int64_t i, std::uint32_t& m) { m = leaves[i] > m ? leaves[i] : m; },
      Kokkos::Max<std::uint32_t, MemoryOf<Space>>(largest));
}

#define INSTANTIATE(S)                                                                                              \
  template struct SegmentTree<S>;                                                                                   \
  template void update<S>(const S&, const SegmentTree<S>&, const VectorRef<const std::uint32_t, S>&,               \
                          const VectorRef<const std::uint32_t, S>&, const std::uint32_t*);                         \
  template void rebuild<S>(const S&, const SegmentTree<S>&);                                                        \
  template void largest_leaf<S>(const S&, const SegmentTree<S>&, const Kokkos::View<std::uint32_t, MemoryOf<S>>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
