// Row tiles: one launch shape for formulas that work on every row of a batch, for several items of each row.
//
// A kernel body is written as steps of `tile.items(n, f)`, where f(item, row) handles one item of the row(s) at `row`
// and returns nothing, with `tile.sync()` between steps that read each other's results. On a host core a tile is
// one pack of rows (core/pack.hpp) and items are a loop; on a device a tile is a team: items are spread over its
// threads, rows over vector lanes. What a tile keeps between steps is in buffers that all tiles share on a host, where
// they stay in the cache, and in the team's scratch on a device.
#pragma once

#include "vulpes/core/pack.hpp"
#include "vulpes/core/pack_cuda.hpp"
#include "vulpes/core/spaces.hpp"

namespace vulpes {

template <class Space, class Real>
class HostTile {
 public:
  using Value = std::conditional_t<kernels_use_packs, Pack<Real>, Real>;
  static constexpr bool on_device = false;
  static constexpr int rows = Pack<Real>::size;
  KOKKOS_INLINE_FUNCTION explicit HostTile(int index) : index_(index) {}
  KOKKOS_INLINE_FUNCTION int index() const { return index_; }
  template <class F>
  KOKKOS_INLINE_FUNCTION void items(int n, const F& f) const {
    for (int i = 0; i < n; ++i) {
      for (int r = 0; r < rows; r += lanes<Value>) f(i, index_ * rows + r);
    }
  }
  KOKKOS_INLINE_FUNCTION void sync() const {}
  /// No scratch: null.
  KOKKOS_INLINE_FUNCTION Real* scratch() const { return nullptr; }

 private:
  int index_;
};

template <class Space, class Real>
class DeviceTile {
 public:
  using Value = Real;
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;
  static constexpr bool on_device = true;
  static constexpr int rows = 8;  // a sector of 32 bytes of a transposed buffer
  static constexpr int threads = 32;
  KOKKOS_INLINE_FUNCTION explicit DeviceTile(const Member& team) : team_(team) {}
  KOKKOS_INLINE_FUNCTION int index() const { return team_.league_rank(); }
  template <class F>
  KOKKOS_INLINE_FUNCTION void items(int n, const F& f) const {
    const int row0 = team_.league_rank() * rows;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team_, n), [&](int i) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team_, rows), [&](int r) { f(i, row0 + r); });
    });
  }
  KOKKOS_INLINE_FUNCTION void sync() const { team_.team_barrier(); }
  /// The scratch that was asked for, [items, rows].
  KOKKOS_INLINE_FUNCTION Real* scratch() const {
    return static_cast<Real*>(team_.team_scratch(0).get_shmem_aligned(0, sizeof(Real)));
  }

 private:
  const Member& team_;
};

template <class Space, class Real>
using Tile = std::conditional_t<is_host_space<Space>, HostTile<Space, Real>, DeviceTile<Space, Real>>;

/// Runs `body(tile)` for the tiles of `rows` rows. `rows` is a multiple of the tile's rows. `scratch_items`: items that
/// a device tile keeps in its scratch.
template <class Real, class Space, class Body>
void for_each_tile(const Space& space, const char* label, int rows, [[maybe_unused]] int scratch_items,
                   const Body& body) {
  using T = Tile<Space, Real>;
  const int tiles = rows / T::rows;
  if constexpr (is_host_space<Space>) {
    Kokkos::parallel_for(label, range(space, tiles), [=](std::int64_t i) { body(T(static_cast<int>(i))); });
  } else {
    using Policy = Kokkos::TeamPolicy<Space>;
    auto policy = Kokkos::Experimental::require(Policy(space, tiles, T::threads, T::rows),
                                                Kokkos::Experimental::WorkItemProperty::HintLightWeight);
    policy.set_scratch_size(0, Kokkos::PerTeam(scratch_items * T::rows * static_cast<int>(sizeof(Real))));
    Kokkos::parallel_for(
        label, policy, KOKKOS_LAMBDA(const typename Policy::member_type& team) { body(T(team)); });
  }
}

template <class Real, class Space, class Body>
void for_each_tile(const Space& space, const char* label, int rows, const Body& body) {
  for_each_tile<Real>(space, label, rows, 0, body);
}

}  // namespace vulpes
