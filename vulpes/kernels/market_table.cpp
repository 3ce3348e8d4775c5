#include "vulpes/kernels/market_table.hpp"

namespace vulpes::kernels {
namespace {

/// Copies a host vector to a device array.
template <class Array, class Space, class T>
Array to_device(const Space& space, const char* label, const std::vector<T>& host) {
  auto device = allocate<Array>(space, label, host.size());
  if (!host.empty())
    Kokkos::deep_copy(
        space, device,
        Kokkos::View<const T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
            host.data(), host.size()));
  return device;
}

}  // namespace

template <class Space>
MarketTable<Space>::MarketTable(const Space& space, const std::vector<market::Bar>& host_bars,
                                const std::vector<float>& host_features, int columns,
                                const std::vector<std::int32_t>& segments)
    : bars(to_device<Vector<market::Bar, Space>>(space, "vulpes::market_table::bars", host_bars)),
      features(allocate<Matrix<float, Space>>(space, "vulpes::market_table::features", host_bars.size(), columns)),
      feature_columns(columns) {
  if (!host_bars.empty()) {
    Kokkos::deep_copy(
        space, features,
        Kokkos::View<const float**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
            host_features.data(), host_bars.size(), columns));
  }
  std::vector<std::uint32_t> ends(segments.size());
  for (std::size_t i = segments.size(); i-- > 0;) {
    const bool last = i + 1 == segments.size() || segments[i + 1] != segments[i];
    ends[i] = last ? static_cast<std::uint32_t>(i + 1) : ends[i + 1];
  }
  segment_end = to_device<Vector<std::uint32_t, Space>>(space, "vulpes::market_table::segment_end", ends);
  space.fence("vulpes::market_table");
}

#define INSTANTIATE(S) template struct MarketTable<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
