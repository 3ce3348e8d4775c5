// Portable back end: Kokkos Kernels.
#include <KokkosBlas3_gemm.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "vulpes/core/gemm.hpp"

namespace vulpes {
namespace {

/// A block as a View whose rows are `stride` apart; the layout stays LayoutRight.
template <class Space, class T>
auto view_of(const Block<T>& b) {
  return Kokkos::subview(MatrixRef<T, Space>(b.data, b.rows, b.stride), Kokkos::ALL, std::pair<int, int>(0, b.columns));
}

}  // namespace

template <class Space, class Real>
void multiply(const Space& space, const char* label, const ProductBatch<Real>& batch) {
  const Kokkos::Profiling::ScopedRegion region(label);
  for (int index = 0; index < batch.count; ++index) {
    const Product<Real> p = batch.products[index];
    const int m = p.m(), n = p.n(), k = p.k();
    KokkosBlas::gemm(space, p.op_a == Op::none ? "N" : "T", p.op_b == Op::none ? "N" : "T", p.scale,
                     view_of<Space>(p.a), view_of<Space>(p.b), p.accumulate ? Real(1) : Real(0), view_of<Space>(p.c));
    if (p.column_bias || p.relu || p.mask.data) {
      Kokkos::parallel_for(
          "vulpes::gemm::epilogue", range(space, static_cast<std::int64_t>(m) * n), KOKKOS_LAMBDA(std::int64_t e) {
            const std::int64_t r = e / n, j = e % n;
            Real& c = p.c.data[r * p.c.stride + j];
            Real y = p.column_bias ? c + p.column_bias[j] : c;
            if (p.relu && y < Real(0)) y = Real(0);
            if (p.mask.data && !(p.mask.data[r * p.mask.stride + j] > Real(0))) y = Real(0);
            c = y;
          });
    }
    if (p.row_sums) {
      Kokkos::parallel_for(
          "vulpes::gemm::row_sums", teams(space, m, 128),
          KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
            const int r = team.league_rank();
            Real sum = 0;
            Kokkos::parallel_reduce(
                Kokkos::TeamThreadRange(team, k),
                [&](int i, Real& s) {
                  s += p.op_a == Op::none ? p.a.data[static_cast<std::int64_t>(r) * p.a.stride + i]
                                          : p.a.data[static_cast<std::int64_t>(i) * p.a.stride + r];
                },
                sum);
            Kokkos::single(Kokkos::PerTeam(team), [&] { p.row_sums[r] = sum; });
          });
    }
  }
}

template <class Space>
const char* gemm_description() {
  return "Kokkos Kernels, fp32";
}

#define INSTANTIATE(S)                                                                   \
  template void multiply<S, float>(const S&, const char*, const ProductBatch<float>&);   \
  template void multiply<S, double>(const S&, const char*, const ProductBatch<double>&); \
  template const char* gemm_description<S>();
#if defined(VULPES_HOST_GEMM_KOKKOS_KERNELS)
VULPES_FOR_EACH_HOST_SPACE(INSTANTIATE)
#endif
#undef INSTANTIATE

}  // namespace vulpes
