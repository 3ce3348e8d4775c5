// Contract: a row has a leaf if and only if it is in the ring and its n-step window is closed. The window of a row
// extends forward in time, so overwriting the oldest row breaks no other row's window.
#include "vulpes/kernels/replay_rows.hpp"

#include <algorithm>
#include <string>

#include "vulpes/core/errors.hpp"
#include "vulpes/kernels/formulas/priority.hpp"

namespace vulpes::kernels {

template <class Space>
ReplayRing<Space>::ReplayRing(const Space& space, std::int64_t wanted, int env_count, int least_slots)
    : envs(env_count) {
  const std::int64_t count = std::max<std::int64_t>((wanted + envs - 1) / envs, least_slots);
  throw_if<InputError>(count * envs >= static_cast<std::int64_t>(no_row), "replay.rows: at most 2^32 - 2 rows");
  slots = static_cast<int>(count);
  rows = allocate_zeroed<Vector<ReplayRow, Space>>(space, "vulpes::replay::rows", capacity());
  cursor = allocate_zeroed<Vector<std::uint64_t, Space>>(space, "vulpes::replay::cursor", 2);
  largest = allocate_zeroed<Kokkos::View<std::uint32_t, MemoryOf<Space>>>(space, "vulpes::replay::largest");
  tree = SegmentTree<Space>(space, capacity());
  view = {rows.data(), cursor.data(), static_cast<std::uint32_t>(envs), static_cast<std::uint32_t>(slots)};
}

template <class Space>
void refresh_new_priority(const Space& space, const ReplayRing<Space>& ring) {
  largest_leaf(space, ring.tree, ring.largest);
}

template <class Space>
void close_windows(const Space& space, const ReplayRing<Space>& ring, int n_step) {
  if (n_step > ring.slots) {
    throw InputError("replay.rows: " + std::to_string(ring.slots) +
                     " bars of each account, fewer than agent.n_step = " + std::to_string(n_step) +
                     "; raise replay.rows");
  }
  const RingView view = ring.view;
  const TreeView tree = ring.tree.view;
  const std::uint32_t* largest = ring.largest.data();
  Kokkos::parallel_for(
      "vulpes::replay::close_windows", range(space, ring.envs), KOKKOS_LAMBDA(std::int64_t e) {
        const auto env = static_cast<std::uint32_t>(e);
        const std::uint64_t written = view.cursor[1], slot = written - 1;
        const std::uint32_t leaf = *largest > 0 ? *largest : static_cast<std::uint32_t>(priority_one);
        const std::uint32_t index = view.row(slot, env);
        const ReplayRow& row = view.rows[index];
        const bool ended = (row.flags & ReplayRow::ended) != 0;
        // Rows of this episode back to n - 1 bars ago; their windows contain this row.
        for (int back = 0; back < n_step && back <= row.episode_offset; ++back) {
          const bool closed = ended || back == n_step - 1;
          if (back == 0 || closed) tree.set(view.row(slot - back, env), closed ? leaf : 0u);
        }
        if (env == 0) view.cursor[0] = written;  // this launch reads cursor[1] only
      });
}

#define INSTANTIATE(S)                                                   \
  template struct ReplayRing<S>;                                         \
  template void refresh_new_priority<S>(const S&, const ReplayRing<S>&); \
  template void close_windows<S>(const S&, const ReplayRing<S>&, int);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
