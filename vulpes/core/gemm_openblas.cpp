// Host back end: OpenBLAS, one single-threaded call a thread and product.
//
// Every product is cut into one strip a thread, along the longer side of C; the cut depends on shapes and thread
// count only, so results are reproducible. Epilogues run on a strip while it is in cache.
#include <cblas.h>

#include <algorithm>

#include "vulpes/core/gemm.hpp"
#include "vulpes/core/sums.hpp"

namespace vulpes {
namespace {

void blas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float* a, int lda, const float* b,
               int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}
void blas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double* a, int lda, const double* b,
               int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1.0, a, lda, b, ldb, beta, c, ldc);
}

/// Strip `part` of `parts` of a side of length n, cut at multiples of 16.
struct Strip {
  int begin, count;
};
Strip strip_of(int n, int part, int parts) {
  const int units = (n + 15) / 16;
  const int begin = std::min(n, units * part / parts * 16);
  const int end = std::min(n, units * (part + 1) / parts * 16);
  return {begin, end - begin};
}

template <class Real>
void epilogue(const Product<Real>& p, int row0, int rows, int column0, int columns) {
  if (!p.column_bias && !p.relu && !p.mask.data) return;
  for (int r = row0; r < row0 + rows; ++r) {
    Real* __restrict c = p.c.data + static_cast<std::int64_t>(r) * p.c.stride + column0;
    if (p.column_bias) {
      const Real* __restrict bias = p.column_bias + column0;
      if (p.relu) {
        for (int j = 0; j < columns; ++j) {
          const Real y = c[j] + bias[j];
          c[j] = y < Real(0) ? Real(0) : y;  // NaN stays NaN
        }
      } else {
        for (int j = 0; j < columns; ++j) c[j] += bias[j];
      }
    } else if (p.relu) {
      for (int j = 0; j < columns; ++j) c[j] = c[j] < Real(0) ? Real(0) : c[j];
    }
    if (p.mask.data) {
      const Real* __restrict mask = p.mask.data + static_cast<std::int64_t>(r) * p.mask.stride + column0;
      for (int j = 0; j < columns; ++j) c[j] = mask[j] > Real(0) ? c[j] : Real(0);
    }
  }
}

/// Sums of op(A) along K for rows [row0, row0 + rows), in a fixed order.
template <class Real>
void row_sums(const Product<Real>& p, int row0, int rows) {
  const int k = p.k();
  if (p.op_a == Op::none) {
    for (int r = row0; r < row0 + rows; ++r) {
      const Real* a = p.a.data + static_cast<std::int64_t>(r) * p.a.stride;
      p.row_sums[r] = fixed_sum<Real>(k, [=](std::int64_t i) { return a[i]; });
    }
  } else {
    Real* __restrict sums = p.row_sums + row0;
    std::fill(sums, sums + rows, Real(0));
    for (int i = 0; i < k; ++i) {
      const Real* __restrict a = p.a.data + static_cast<std::int64_t>(i) * p.a.stride + row0;
      for (int r = 0; r < rows; ++r) sums[r] += a[r];
    }
  }
}

template <class Real>
void run_strip(const Product<Real>& p, int part, int parts) {
  const bool cut_rows = p.row_sums || p.m() >= p.n();
  const Strip strip = strip_of(cut_rows ? p.m() : p.n(), part, parts);
  if (strip.count == 0) return;
  const int row0 = cut_rows ? strip.begin : 0, rows = cut_rows ? strip.count : p.m();
  const int column0 = cut_rows ? 0 : strip.begin, columns = cut_rows ? p.n() : strip.count;
  const Real* a = p.a.data + static_cast<std::int64_t>(row0) * (p.op_a == Op::none ? p.a.stride : 1);
  const Real* b = p.b.data + static_cast<std::int64_t>(column0) * (p.op_b == Op::none ? 1 : p.b.stride);
  Real* c = p.c.data + static_cast<std::int64_t>(row0) * p.c.stride + column0;
  blas_gemm(p.op_a == Op::none ? CblasNoTrans : CblasTrans, p.op_b == Op::none ? CblasNoTrans : CblasTrans, rows,
            columns, p.k(), a, p.a.stride, b, p.b.stride, p.accumulate ? Real(1) : Real(0), c, p.c.stride);
  epilogue(p, row0, rows, column0, columns);
  if (p.row_sums) row_sums(p, row0, rows);
}

}  // namespace

template <class Space, class Real>
void multiply(const Space& space, const char* label, const ProductBatch<Real>& batch) {
  const int parts = space.concurrency();
  const ProductBatch<Real>* products = &batch;  // host spaces run the launch before returning
  Kokkos::parallel_for(label, range(space, parts), [=](std::int64_t part) {
    for (int i = 0; i < products->count; ++i) run_strip(products->products[i], static_cast<int>(part), parts);
  });
}

template <class Space>
const char* gemm_description() {
  return "OpenBLAS, fp32";
}

#define INSTANTIATE(S)                                                                   \
  template void multiply<S, float>(const S&, const char*, const ProductBatch<float>&);   \
  template void multiply<S, double>(const S&, const char*, const ProductBatch<double>&); \
  template const char* gemm_description<S>();
VULPES_FOR_EACH_HOST_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes
