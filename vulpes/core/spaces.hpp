// Execution spaces, the View types used everywhere, and launch policies.
//
// Every launch takes its execution-space instance as its first argument; nothing uses a default instance.
// Kernels are templates over the space, defined in a .cpp file and instantiated there once for each
// enabled back end: `#define INSTANTIATE(S) template void launch<S>(const S&, ...);` followed by
// `VULPES_FOR_EACH_SPACE(INSTANTIATE)`.
#pragma once

#include <cstdint>
#include <string>

#include "vulpes/core/compat.hpp"
#include "vulpes/core/spaces_cuda.hpp"

#if defined(KOKKOS_ENABLE_SERIAL)
#define VULPES_FOR_SERIAL_SPACE(M) M(Kokkos::Serial)
#else
#define VULPES_FOR_SERIAL_SPACE(M)
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
#define VULPES_FOR_OPENMP_SPACE(M) M(Kokkos::OpenMP)
#else
#define VULPES_FOR_OPENMP_SPACE(M)
#endif

/// Applies macro `M` to every enabled execution space.
#define VULPES_FOR_EACH_SPACE(M) VULPES_FOR_SERIAL_SPACE(M) VULPES_FOR_OPENMP_SPACE(M) VULPES_FOR_CUDA_SPACE(M)
/// Applies macro `M` to the execution spaces whose memory is the host's.
#define VULPES_FOR_EACH_HOST_SPACE(M) VULPES_FOR_SERIAL_SPACE(M) VULPES_FOR_OPENMP_SPACE(M)

namespace vulpes {

/// The space that trains by default: the accelerator where there is one, else all host cores.
using DefaultSpace = Kokkos::DefaultExecutionSpace;

template <class Space>
using MemoryOf = typename Space::memory_space;

/// True where kernels of `Space` run on host cores and may work on packs of rows (core/pack.hpp).
template <class Space>
inline constexpr bool is_host_space = Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemoryOf<Space>>::accessible;

/// Owning arrays. Row-major everywhere: element (r, c) of a Matrix is at r * extent(1) + c.
template <class T, class Space>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, MemoryOf<Space>>;
template <class T, class Space>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, MemoryOf<Space>>;

/// Non-owning arrays: slices of a flat buffer, kernel arguments.
template <class T, class Space>
using VectorRef = Kokkos::View<T*, Kokkos::LayoutRight, MemoryOf<Space>, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T, class Space>
using MatrixRef = Kokkos::View<T**, Kokkos::LayoutRight, MemoryOf<Space>, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class T>
using HostVector = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>;

/// Allocates without initialising (on `space`, no fence): whoever owns the buffer writes it before it is read.
template <class ViewType, class Space, class... Extents>
ViewType allocate(const Space& space, const std::string& label, Extents... extents) {
  return ViewType(Kokkos::view_alloc(space, Kokkos::WithoutInitializing, label), extents...);
}

/// Allocates and zero-fills on `space`.
template <class ViewType, class Space, class... Extents>
ViewType allocate_zeroed(const Space& space, const std::string& label, Extents... extents) {
  return ViewType(Kokkos::view_alloc(space, label), extents...);
}

/// Range over [begin, end) on `space`. The hint makes large functors travel as kernel arguments, which a graph
/// capture needs.
template <class Space>
auto range(const Space& space, std::int64_t begin, std::int64_t end) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  return Kokkos::Experimental::require(Policy(space, begin, end),
                                       Kokkos::Experimental::WorkItemProperty::HintLightWeight);
}
template <class Space>
auto range(const Space& space, std::int64_t count) {
  return range(space, 0, count);
}

/// League of `teams` teams with `team_size` threads on a device and 1 on a host space.
template <class Space>
auto teams(const Space& space, int league, int device_team_size) {
  using Policy = Kokkos::TeamPolicy<Space>;
  return Kokkos::Experimental::require(Policy(space, league, is_host_space<Space> ? 1 : device_team_size),
                                       Kokkos::Experimental::WorkItemProperty::HintLightWeight);
}

}  // namespace vulpes
