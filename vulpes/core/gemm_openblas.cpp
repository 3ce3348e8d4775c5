// Host back end: each thread multiplies by itself, with register tiles or one single-threaded call of OpenBLAS.
//
// Every product is cut into one strip a thread, along the longer side of C; the cut and the choice of the kernel depend
// on shapes and thread count only, so results are reproducible. OpenBLAS' epilogues run on a strip while it is in
// cache.
#include <cblas.h>

#include <algorithm>

#include "vulpes/core/gemm_tiles.hpp"
#include "vulpes/core/sums.hpp"

namespace vulpes {
namespace {

void blas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha, const float* a, int lda,
               const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void blas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const double* a, int lda,
               const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

template <class Real>
void epilogue(const Product<Real>& p) {
  if (!p.column_bias && !p.relu && !p.mask.data) return;
  const int columns = p.n();
  for (int r = 0; r < p.m(); ++r) {
    Real* __restrict c = p.c.data + static_cast<std::int64_t>(r) * p.c.stride;
    if (p.column_bias) {
      const Real* __restrict bias = p.column_bias;
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
      const Real* __restrict mask = p.mask.data + static_cast<std::int64_t>(r) * p.mask.stride;
      for (int j = 0; j < columns; ++j) c[j] = mask[j] > Real(0) ? c[j] : Real(0);
    }
  }
}

/// Sums of op(A) along K, in a fixed order.
template <class Real>
void row_sums(const Product<Real>& p) {
  const int k = p.k(), rows = p.m();
  if (p.op_a == Op::none) {
    for (int r = 0; r < rows; ++r) {
      const Real* a = p.a.data + static_cast<std::int64_t>(r) * p.a.stride;
      p.row_sums[r] = fixed_sum<Real>(k, [=](std::int64_t i) { return a[i]; });
    }
  } else {
    Real* __restrict sums = p.row_sums;
    std::fill(sums, sums + rows, Real(0));
    for (int i = 0; i < k; ++i) {
      const Real* __restrict a = p.a.data + static_cast<std::int64_t>(i) * p.a.stride;
      for (int r = 0; r < rows; ++r) sums[r] += a[r];
    }
  }
}

/// Whether register tiles are used: where AVX-512 gives them 32 registers, and A, which they read once a panel without
/// copying it, stays in the second-level cache. There they are 1.2 to 1.4 times as fast as OpenBLAS; with a larger A
/// they are slower. A matter of shapes alone.
template <class Real>
bool in_tiles([[maybe_unused]] const Product<Real>& p) {
#if defined(__AVX512F__)
  constexpr std::int64_t largest_bytes = 1 << 20;
  return static_cast<std::int64_t>(p.a.rows) * p.a.stride * static_cast<std::int64_t>(sizeof(Real)) <= largest_bytes;
#else
  return false;
#endif
}

/// Products with one op(B) of one shape, on this thread.
template <class Real>
void multiply_group(const Product<Real>* products, int count) {
  if (products->m() == 0 || products->n() == 0) return;
  const bool tiles = in_tiles(*products);
  if (tiles) gemm_tiles::multiply(products, count);
  for (int i = 0; i < count; ++i) {
    const Product<Real>& p = products[i];
    if (!tiles) {
      blas_gemm(p.op_a == Op::none ? CblasNoTrans : CblasTrans, p.op_b == Op::none ? CblasNoTrans : CblasTrans, p.m(),
                p.n(), p.k(), p.scale, p.a.data, p.a.stride, p.b.data, p.b.stride, p.accumulate ? Real(1) : Real(0),
                p.c.data, p.c.stride);
      epilogue(p);
    }
    if (p.row_sums) row_sums(p);
  }
}

/// The product for rows [begin, begin + count) of C.
template <class Real>
Product<Real> rows_of(Product<Real> p, int begin, int count) {
  p.a = p.op_a == Op::none ? p.a.rows_from(begin, count) : p.a.columns_from(begin, count);
  p.c = p.c.rows_from(begin, count);
  if (p.mask.data) p.mask = p.mask.rows_from(begin, count);
  if (p.row_sums) p.row_sums += begin;
  return p;
}

/// The product for columns [begin, begin + count) of C.
template <class Real>
Product<Real> columns_of(Product<Real> p, int begin, int count) {
  p.b = p.op_b == Op::none ? p.b.columns_from(begin, count) : p.b.rows_from(begin, count);
  p.c = p.c.columns_from(begin, count);
  if (p.column_bias) p.column_bias += begin;
  if (p.mask.data) p.mask = p.mask.columns_from(begin, count);
  return p;
}

/// Strip `part` of `parts` of a product. Columns are cut between panels, rows anywhere.
template <class Real>
Product<Real> strip_of(const Product<Real>& p, int part, int parts) {
  const bool by_rows = p.row_sums || p.m() >= p.n();
  const std::int64_t unit = by_rows ? 1 : gemm_tiles::panel_columns<Real>, size = by_rows ? p.m() : p.n();
  const std::int64_t units = (size + unit - 1) / unit;
  const int begin = static_cast<int>(std::min(size, units * part / parts * unit));
  const int end = static_cast<int>(std::min(size, units * (part + 1) / parts * unit));
  return by_rows ? rows_of(p, begin, end - begin) : columns_of(p, begin, end - begin);
}

}  // namespace

template <class Real>
void multiply_on_this_thread(const ProductBatch<Real>& batch) {
  for (int i = 0; i < batch.count;) {
    int end = i + 1;
    while (end < batch.count && gemm_tiles::same_operand(batch.products[i], batch.products[end])) ++end;
    multiply_group(batch.products + i, end - i);
    i = end;
  }
}

template <class Space, class Real>
void multiply(const Space& space, const char* label, const ProductBatch<Real>& batch) {
  const int parts = space.concurrency();
  const ProductBatch<Real>* products = &batch;  // host spaces run the launch before returning
  Kokkos::parallel_for(label, range(space, parts), [=](std::int64_t part) {
    for (int i = 0; i < products->count; ++i) {
      const Product<Real> strip = strip_of(products->products[i], static_cast<int>(part), parts);
      multiply_group(&strip, 1);
    }
  });
}

template <class Space>
const char* gemm_description() {
#if defined(__AVX512F__)
  return "register tiles and OpenBLAS, fp32";
#else
  return "OpenBLAS, fp32";
#endif
}

template void multiply_on_this_thread<float>(const ProductBatch<float>&);
template void multiply_on_this_thread<double>(const ProductBatch<double>&);
#define INSTANTIATE(S)                                                                   \
  template void multiply<S, float>(const S&, const char*, const ProductBatch<float>&);   \
  template void multiply<S, double>(const S&, const char*, const ProductBatch<double>&); \
  template const char* gemm_description<S>();
VULPES_FOR_EACH_HOST_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes
