// Products of matrices that lie in a core's own caches, on one host thread, with register tiles.
//
// C is computed in tiles of up to `tile_rows` rows by two packs of columns that stay in registers over the whole of K.
// B is copied, panel by panel (two packs of columns), so that a tile reads it forwards; A is read where it lies.
// Against a general BLAS this saves the copy of A, the pass that scales C, and the passes of the epilogue. An element
// of C is one chain of fused multiply-adds in the order of K: it depends neither on how C is cut nor on the threads.
#pragma once

#include <algorithm>

#include "vulpes/core/gemm.hpp"
#include "vulpes/core/pack.hpp"

namespace vulpes::gemm_tiles {

/// Of AVX-512; the narrower sets have 16, or pairs of 32.
inline constexpr int registers = pack_bytes == 64 ? 32 : 16;
inline constexpr int panel_packs = 2;
/// One register holds the broadcast element of A, `panel_packs` the row of B.
inline constexpr int tile_rows = (registers - panel_packs - 1) / panel_packs;
/// Longest stretch of K between two passes over C.
inline constexpr int longest_k = 512;

template <class Real>
inline constexpr int panel_columns = panel_packs* Pack<Real>::size;

/// Rows [k0, k0 + k) and columns [column, column + columns) of op(B) as [k, width]; columns beyond N are zero.
template <class Real>
struct Panel {
  alignas(64) Real data[longest_k * panel_columns<Real>];
};

/// The transpose of a square of packs, in log2(size) perfect shuffles.
template <class Real>
inline void transpose(Pack<Real> (&r)[Pack<Real>::size]) {
  constexpr int n = Pack<Real>::size;
  using Index = typename Pack<Real>::Mask::Raw;
  Index low{}, high{};
  for (int i = 0; i < n; ++i) {
    low[i] = i / 2 + (i % 2) * n;
    high[i] = low[i] + n / 2;
  }
#pragma GCC unroll 4
  for (int stage = 1; stage < n; stage *= 2) {
    Pack<Real> t[n];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      t[2 * i] = __builtin_shuffle(r[i].raw, r[i + n / 2].raw, low);
      t[2 * i + 1] = __builtin_shuffle(r[i].raw, r[i + n / 2].raw, high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) r[i] = t[i];
  }
}

/// `packs` packs of columns from `column` on.
template <class Real>
void fill_panel(const Product<Real>& p, int k0, int k, int column, int packs, Real* __restrict panel) {
  using V = Pack<Real>;
  constexpr int n = V::size;
  const int width = packs * n, columns = std::min(width, p.n() - column);
  const std::int64_t stride = p.b.stride;
  if (p.op_b == Op::none) {
    const Real* b = p.b.data + k0 * stride + column;
    if (columns == width) {
      for (int i = 0; i < k; ++i, b += stride) {
        for (int j = 0; j < packs; ++j) V::load(b + j * n).store(panel + i * width + j * n);
      }
    } else {
      for (int i = 0; i < k; ++i, b += stride) {
        for (int j = 0; j < width; ++j) panel[i * width + j] = j < columns ? b[j] : Real(0);
      }
    }
    return;
  }
  const Real* b = p.b.data + column * stride + k0;
  const int squares_k = k / n * n, squares_columns = columns / n * n;
  for (int j = 0; j < squares_columns; j += n) {
    for (int i = 0; i < squares_k; i += n) {
      V square[n];
#pragma GCC unroll 16
      for (int l = 0; l < n; ++l) square[l] = V::load(b + (j + l) * stride + i);
      transpose<Real>(square);
#pragma GCC unroll 16
      for (int l = 0; l < n; ++l) square[l].store(panel + (i + l) * width + j);
    }
  }
  const auto copy = [&](int from_k, int from_column) {
    for (int i = from_k; i < k; ++i) {
      for (int j = from_column; j < width; ++j) panel[i * width + j] = j < columns ? b[j * stride + i] : Real(0);
    }
  };
  if (squares_k < k) copy(squares_k, 0);
  if (squares_columns < width) copy(0, squares_columns);
}

/// What happens to a tile's sums before they are C; `first` and `last` of the stretches of K.
template <class Real>
struct Epilogue {
  bool accumulate;
  const Real* column_bias;
  bool relu;
  Block<const Real> mask;

  Epilogue(const Product<Real>& p, bool first, bool last)
      : accumulate(p.accumulate || !first),
        column_bias(last ? p.column_bias : nullptr),
        relu(last && p.relu),
        mask(last ? p.mask : Block<const Real>{}) {}
};

/// C[row, column] of a tile of `Rows` rows and `Packs` packs, of which the first `columns` columns exist.
template <class Real, int Rows, int Packs, Op OpA>
void multiply_tile(const Product<Real>& p, const Epilogue<Real>& epilogue, int k0, int k, int row, int column,
                   int columns, const Real* __restrict panel) {
  using V = Pack<Real>;
  constexpr int n = V::size;
  V sum[Rows][Packs];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < Packs; ++j) sum[i][j] = typename V::Raw{};
  }
  const std::int64_t stride = p.a.stride;
  if constexpr (OpA == Op::transpose) {
    const Real* a = p.a.data + k0 * stride + row;
    for (int l = 0; l < k; ++l) {
      V b[Packs];
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) b[j] = V::load(panel + j * n);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const V x = a[i];
#pragma GCC unroll 2
        for (int j = 0; j < Packs; ++j) sum[i][j] += x * b[j];
      }
      a += stride;
      panel += Packs * n;
    }
  } else {
    // A pointer for three rows each: more would not fit the registers.
    constexpr int groups = (Rows + 2) / 3;
    const Real* a[groups];
#pragma GCC unroll 16
    for (int g = 0; g < groups; ++g) a[g] = p.a.data + (row + 3 * g) * stride + k0;
    for (int l = 0; l < k; ++l) {
      V b[Packs];
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) b[j] = V::load(panel + j * n);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const V x = a[i / 3][(i % 3) * stride];
#pragma GCC unroll 2
        for (int j = 0; j < Packs; ++j) sum[i][j] += x * b[j];
      }
#pragma GCC unroll 16
      for (int g = 0; g < groups; ++g) ++a[g];
      panel += Packs * n;
    }
  }
  const V zero = typename V::Raw{};
  if (p.scale != Real(1)) {
    const V scale = p.scale;
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) sum[i][j] *= scale;
    }
  }
  Real* c = p.c.data + static_cast<std::int64_t>(row) * p.c.stride + column;
  if (columns < Packs * n) {  // a margin of C: element by element
    for (int i = 0; i < Rows; ++i, c += p.c.stride) {
      for (int j = 0; j < columns; ++j) {
        Real y = sum[i][j / n][j % n];
        if (epilogue.accumulate) y += c[j];
        if (epilogue.column_bias) y += epilogue.column_bias[column + j];
        if (epilogue.relu && y < Real(0)) y = Real(0);  // NaN stays NaN
        if (epilogue.mask.data &&
            !(epilogue.mask.data[static_cast<std::int64_t>(row + i) * epilogue.mask.stride + column + j] > Real(0)))
          y = Real(0);
        c[j] = y;
      }
    }
    return;
  }
  if (epilogue.accumulate) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) sum[i][j] += V::load(c + i * static_cast<std::int64_t>(p.c.stride) + j * n);
    }
  }
  if (epilogue.column_bias) {
    V bias[Packs];
#pragma GCC unroll 2
    for (int j = 0; j < Packs; ++j) bias[j] = V::load(epilogue.column_bias + column + j * n);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) sum[i][j] += bias[j];
    }
  }
  if (epilogue.relu) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) sum[i][j] = select(sum[i][j] < zero, zero, sum[i][j]);
    }
  }
  if (epilogue.mask.data) {
    const Real* mask = epilogue.mask.data + static_cast<std::int64_t>(row) * epilogue.mask.stride + column;
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < Packs; ++j) {
        const V m = V::load(mask + i * static_cast<std::int64_t>(epilogue.mask.stride) + j * n);
        sum[i][j] = select(m > zero, sum[i][j], zero);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < Packs; ++j) sum[i][j].store(c + i * static_cast<std::int64_t>(p.c.stride) + j * n);
  }
}

template <class Real, int Packs, Op OpA, int Rows = tile_rows>
void multiply_tile_of(int rows, const Product<Real>& p, const Epilogue<Real>& epilogue, int k0, int k, int row,
                      int column, int columns, const Real* panel) {
  if (rows == Rows)
    multiply_tile<Real, Rows, Packs, OpA>(p, epilogue, k0, k, row, column, columns, panel);
  else if constexpr (Rows > 1)
    multiply_tile_of<Real, Packs, OpA, Rows - 1>(rows, p, epilogue, k0, k, row, column, columns, panel);
}

/// All tiles of a panel's columns; the rows are shared out evenly among as few tiles as possible.
template <class Real, int Packs>
void multiply_panel(const Product<Real>& p, const Epilogue<Real>& epilogue, int k0, int k, int column,
                    const Real* panel) {
  const int columns = std::min(Packs * Pack<Real>::size, p.n() - column);
  const int m = p.m(), tiles = (m + tile_rows - 1) / tile_rows;
  for (int t = 0, row = 0; t < tiles; ++t) {
    const int end = static_cast<int>(static_cast<std::int64_t>(m) * (t + 1) / tiles);
    if (p.op_a == Op::none)
      multiply_tile_of<Real, Packs, Op::none>(end - row, p, epilogue, k0, k, row, column, columns, panel);
    else
      multiply_tile_of<Real, Packs, Op::transpose>(end - row, p, epilogue, k0, k, row, column, columns, panel);
    row = end;
  }
}

template <class Real>
bool same_operand(const Product<Real>& a, const Product<Real>& b) {
  return a.b.data == b.b.data && a.b.stride == b.b.stride && a.op_b == b.op_b && a.n() == b.n() && a.k() == b.k();
}

/// `count` products with one op(B) of one shape: a panel of it serves them all. Without row sums.
template <class Real>
void multiply(const Product<Real>* products, int count) {
  static thread_local Panel<Real> panel;
  const int n = products[0].n(), k = products[0].k();
  for (int column = 0; column < n; column += panel_columns<Real>) {
    const int packs = n - column > Pack<Real>::size ? 2 : 1;
    for (int k0 = 0; k0 == 0 || k0 < k; k0 += longest_k) {
      const int stretch = std::min(longest_k, k - k0);
      fill_panel(products[0], k0, stretch, column, packs, panel.data);
      for (int i = 0; i < count; ++i) {
        const Product<Real>& p = products[i];
        const Epilogue<Real> epilogue(p, k0 == 0, k0 + stretch == k);
        if (packs == 2)
          multiply_panel<Real, 2>(p, epilogue, k0, stretch, column, panel.data);
        else
          multiply_panel<Real, 1>(p, epilogue, k0, stretch, column, panel.data);
      }
    }
  }
}

}  // namespace vulpes::gemm_tiles
