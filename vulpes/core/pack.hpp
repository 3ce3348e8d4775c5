// A pack of rows: the value type with which a host core runs a per-row formula on several rows at once.
//
// Formulas are templates over a value type V: `float` or `double` on a device and in tests, `Pack<float>` on
// host cores. A pack does lane by lane exactly what the scalar does, in the same order, so both give the same
// numbers; no sum ever crosses lanes.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "vulpes/core/compat.hpp"

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace vulpes {

#if defined(__AVX512F__)
inline constexpr int pack_bytes = 64;
#else
inline constexpr int pack_bytes = 32;
#endif

namespace detail {
template <class T, int N>
struct RawVector {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
}  // namespace detail

/// Lanes of comparison: all bits of a lane set or none.
template <class Real, int N>
struct PackMask {
  using Int = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
  using Raw = typename detail::RawVector<Int, N>::type;
  Raw raw;
};

template <class Real, int N = pack_bytes / static_cast<int>(sizeof(Real))>
struct Pack {
  using value_type = Real;
  using Mask = PackMask<Real, N>;
  using Raw = typename detail::RawVector<Real, N>::type;
  static constexpr int size = N;
  Raw raw;

  Pack() = default;
  Pack(Raw r) : raw(r) {}           // NOLINT: packs convert as their scalars do
  Pack(Real s) : raw(s - Raw{}) {}  // NOLINT; s - 0 is s for every s, so nothing is computed

  static Pack load(const Real* p) {
    Pack r;
    __builtin_memcpy(&r.raw, p, sizeof(Raw));
    return r;
  }
  void store(Real* p) const { __builtin_memcpy(p, &raw, sizeof(Raw)); }
  Real operator[](int lane) const { return raw[lane]; }
  void set(int lane, Real v) { raw[lane] = v; }

  friend Pack operator+(Pack a, Pack b) { return a.raw + b.raw; }
  friend Pack operator-(Pack a, Pack b) { return a.raw - b.raw; }
  friend Pack operator*(Pack a, Pack b) { return a.raw * b.raw; }
  friend Pack operator/(Pack a, Pack b) { return a.raw / b.raw; }
  Pack operator-() const { return -raw; }
  Pack& operator+=(Pack b) {
    raw += b.raw;
    return *this;
  }
  Pack& operator-=(Pack b) {
    raw -= b.raw;
    return *this;
  }
  Pack& operator*=(Pack b) {
    raw *= b.raw;
    return *this;
  }
  friend Mask operator<(Pack a, Pack b) { return {a.raw < b.raw}; }
  friend Mask operator>(Pack a, Pack b) { return {a.raw > b.raw}; }
};

// The same vocabulary for scalars, so that a formula is written once.
template <class V>
struct lanes_of {
  static constexpr int value = 1;
  using scalar = V;
};
template <class Real, int N>
struct lanes_of<Pack<Real, N>> {
  static constexpr int value = N;
  using scalar = Real;
};
/// Rows that a value of type V holds.
template <class V>
inline constexpr int lanes = lanes_of<V>::value;
template <class V>
using scalar_of = typename lanes_of<V>::scalar;

/// condition ? a : b, lane by lane.
KOKKOS_INLINE_FUNCTION float select(bool c, float a, float b) { return c ? a : b; }
KOKKOS_INLINE_FUNCTION double select(bool c, double a, double b) { return c ? a : b; }
template <class Real, int N>
Pack<Real, N> select(PackMask<Real, N> c, Pack<Real, N> a, Pack<Real, N> b) {
  return Pack<Real, N>(c.raw ? a.raw : b.raw);
}

/// a b + c, rounded once where the processor has an instruction for it. Nothing else is fused
/// (cmake/VulpesTargets.cmake).
template <class Real>
requires std::is_floating_point_v<Real> KOKKOS_INLINE_FUNCTION Real multiply_add(Real a, Real b, Real c) {
  KOKKOS_IF_ON_DEVICE(return Kokkos::fma(a, b, c);)
#if defined(__FMA__)
  KOKKOS_IF_ON_HOST(return std::fma(a, b, c);)
#else
  KOKKOS_IF_ON_HOST(return a * b + c;)
#endif
}
template <class Real, int N>
Pack<Real, N> multiply_add(Pack<Real, N> a, Pack<Real, N> b, Pack<Real, N> c) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Real, float> && N == 16) {
    return (typename Pack<Real, N>::Raw)_mm512_fmadd_ps((__m512)a.raw, (__m512)b.raw, (__m512)c.raw);
  }
#elif defined(__FMA__)
  if constexpr (std::is_same_v<Real, float> && N == 8) {
    return (typename Pack<Real, N>::Raw)_mm256_fmadd_ps((__m256)a.raw, (__m256)b.raw, (__m256)c.raw);
  }
#endif
  Pack<Real, N> r;
  for (int i = 0; i < N; ++i) r.set(i, multiply_add(a[i], b[i], c[i]));
  return r;
}

template <class V>
KOKKOS_INLINE_FUNCTION V larger(V a, V b) {
  return select(a > b, a, b);
}
template <class V>
KOKKOS_INLINE_FUNCTION V smaller(V a, V b) {
  return select(a < b, a, b);
}

/// Loads the V at `p` (consecutive rows for a pack).
template <class V>
KOKKOS_INLINE_FUNCTION V load(const scalar_of<V>* p) {
  if constexpr (lanes<V> == 1)
    return *p;
  else
    return V::load(p);
}
template <class V>
KOKKOS_INLINE_FUNCTION void store(scalar_of<V>* p, V v) {
  if constexpr (lanes<V> == 1)
    *p = v;
  else
    v.store(p);
}
/// Lane `i` of a value (the value itself for a scalar).
template <class V>
KOKKOS_INLINE_FUNCTION scalar_of<V> lane(V v, [[maybe_unused]] int i) {
  if constexpr (lanes<V> == 1)
    return v;
  else
    return v[i];
}
template <class V>
KOKKOS_INLINE_FUNCTION void set_lane(V& v, [[maybe_unused]] int i, scalar_of<V> s) {
  if constexpr (lanes<V> == 1)
    v = s;
  else
    v.set(i, s);
}

/// The value type with which `Space` runs per-row formulas in precision `Real`.
template <class Space, class Real>
using RowValue =
    std::conditional_t<Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible,
                       Pack<Real>, Real>;

}  // namespace vulpes
