// How the layers of a pass run: as launches of a space, or by one host thread inside a launch, on its own rows.
//
// A pass is written once, over a range of rows, as calls of `multiply` and of an element-wise step between products.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "vulpes/core/gemm.hpp"

namespace vulpes::kernels {

/// Rows [begin, begin + count).
struct RowRange {
  int begin, count;
};

/// Every call is a launch on `space`.
template <class Space>
struct LaunchRunner {
  const Space& space;

  template <class Real>
  void multiply(const char* label, const ProductBatch<Real>& batch) const {
    vulpes::multiply(space, label, batch);
  }
  /// f(make(), row, i) for the elements i = row * width + column of rows [begin, begin + count). `make()` gives what
  /// all elements share; a device thread makes it once for 8 elements. `width` is a multiple of 8.
  template <class Make, class F>
  void each_element(const char* label, RowRange rows, int width, const Make& make, const F& f) const {
    const std::int64_t first = static_cast<std::int64_t>(rows.begin) * width;
    const std::int64_t stride = static_cast<std::int64_t>(rows.count) * width / 8;
    Kokkos::parallel_for(
        label, range(space, stride), KOKKOS_LAMBDA(std::int64_t i) {
          const auto shared = make();
          for (int k = 0; k < 8; ++k) {
            const std::int64_t e = first + i + k * stride;
            f(shared, static_cast<int>(e / width), e);
          }
        });
  }
};

/// Every call is work of the calling host thread.
struct ThreadRunner {
  template <class Real>
  void multiply(const char*, const ProductBatch<Real>& batch) const {
    multiply_on_this_thread(batch);
  }
  template <class Make, class F>
  void each_element(const char*, RowRange rows, int width, const Make& make, const F& f) const {
    const auto shared = make();
    for (int r = rows.begin; r < rows.begin + rows.count; ++r) {
      const std::int64_t first = static_cast<std::int64_t>(r) * width;
      for (std::int64_t e = first; e < first + width; ++e) f(shared, r, e);
    }
  }
};

/// Part `part` of `parts` of `rows` rows, cut at multiples of `unit`.
inline RowRange part_of_rows(int rows, int unit, int part, int parts) {
  const int units = (rows + unit - 1) / unit;
  const auto cut = [&](int i) {
    return static_cast<int>(std::min<std::int64_t>(rows, static_cast<std::int64_t>(units) * i / parts * unit));
  };
  return {cut(part), cut(part + 1) - cut(part)};
}

}  // namespace vulpes::kernels
