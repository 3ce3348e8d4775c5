#include "vulpes/kernels/market_table.hpp"

#include "vulpes/core/transfer.hpp"

namespace vulpes::kernels {
template <class Space>
MarketTable<Space>::MarketTable(const Space& space, const std::vector<market::Bar>& host_bars,
                                const std::vector<float>& host_features, int columns,
                                const std::vector<std::int32_t>& segments)
    : bars(upload(space, "vulpes::market_table::bars", host_bars)),
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
  segment_end = upload(space, "vulpes::market_table::segment_end", ends);
  space.fence("vulpes::market_table");
}

#define INSTANTIATE(S) template struct MarketTable<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
