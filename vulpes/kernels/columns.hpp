// Transposed buffers: what belongs to neighbouring rows lies side by side.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes::kernels {

/// A transposed buffer [item, row]: item i of row r is at data[i * stride + r].
template <class T>
struct Columns {
  T* data = nullptr;
  std::int64_t stride = 0;
  KOKKOS_INLINE_FUNCTION T* at(std::int64_t item, std::int64_t row) const { return data + item * stride + row; }
  KOKKOS_INLINE_FUNCTION operator Columns<const T>() const { return {data, stride}; }
};

template <class T, class... Properties>
Columns<T> columns(const Kokkos::View<T**, Properties...>& m) {
  return {m.data(), static_cast<std::int64_t>(m.extent(1))};
}

}  // namespace vulpes::kernels
