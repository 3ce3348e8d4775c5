// Dense matrix products with fused epilogues, batched into one launch.
//
// Back ends are sibling files chosen by CMake: gemm_openblas.cpp (host spaces; register tiles of gemm_tiles.hpp where
// these are faster), gemm_cublaslt_cuda.cpp, gemm_kokkos_kernels.cpp (any host space that asks for it). Matrices are
// row-major blocks, so a head's slice of a wider buffer is an operand like any other.
#pragma once

#include "vulpes/core/gemm_kokkos_kernels.hpp"
#include "vulpes/core/spaces.hpp"

namespace vulpes {

/// A row-major block: element (r, c) is data[r * stride + c].
template <class T>
struct Block {
  T* data = nullptr;
  int rows = 0;
  int columns = 0;
  int stride = 0;

  operator Block<const T>() const { return {data, rows, columns, stride}; }
  Block rows_from(int begin, int count) const {
    return {data + static_cast<std::int64_t>(begin) * stride, count, columns, stride};
  }
  Block columns_from(int begin, int count) const { return {data + begin, rows, count, stride}; }
};

enum class Op { none, transpose };

/// Of a device's float products; hosts compute in fp32 always. tf32: inputs are rounded to 10 bits of mantissa
/// (relative error of a product about 5e-4), sums are in fp32.
enum class Precision { fp32, tf32 };
inline Precision precision_of(const std::string& name) { return name == "tf32" ? Precision::tf32 : Precision::fp32; }

/// C = scale op(A) op(B) + accumulate * C, then the epilogue. Shapes: op(A) [M, K], op(B) [K, N], C [M, N].
///
/// Epilogue, in this order, each optional: `column_bias` [N] is added to every row of C; `relu`; `mask` [M, N]
/// zeroes C where mask <= 0 (the gradient of a ReLU whose output is the mask). `row_sums` [M] receives the sums of
/// op(A) along K: with A a layer's output gradient, its bias gradient.
template <class Real>
struct Product {
  Op op_a = Op::none;
  Op op_b = Op::none;
  Block<const Real> a, b;
  Block<Real> c;
  Real scale = 1;
  bool accumulate = false;
  const Real* column_bias = nullptr;
  bool relu = false;
  Block<const Real> mask;
  Real* row_sums = nullptr;
  Precision precision = Precision::fp32;

  int m() const { return c.rows; }
  int n() const { return c.columns; }
  int k() const { return op_a == Op::none ? a.columns : a.rows; }
  double flops() const { return 2.0 * m() * n() * k(); }
};

/// Runs up to `max_products` independent products in one launch on `space`.
template <class Real>
struct ProductBatch {
  static constexpr int max_products = 16;
  Product<Real> products[max_products];
  int count = 0;
  bool full() const { return count == max_products; }
  void add(const Product<Real>& p) { products[count++] = p; }
};

template <class Space, class Real>
void multiply(const Space& space, const char* label, const ProductBatch<Real>& batch);

template <class Space, class Real>
void multiply(const Space& space, const char* label, const Product<Real>& product) {
  ProductBatch<Real> batch;
  batch.add(product);
  multiply(space, label, batch);
}

/// True where `multiply_on_this_thread` serves `Space`: a launch may then run a chain of products whose rows do not
/// depend on each other, each thread its own rows.
template <class Space>
inline constexpr bool threads_multiply = is_host_space<Space> && !host_gemm_is_kokkos_kernels;

/// Runs the products on the calling host thread, from inside a launch of a space with `threads_multiply`. Neighbours
/// with the same op(B) are cheaper than apart.
template <class Real>
void multiply_on_this_thread(const ProductBatch<Real>& batch);

/// The back end and precision in use for `Space`, for logs.
template <class Space>
const char* gemm_description();

}  // namespace vulpes
