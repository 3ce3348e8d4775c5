// Elementary functions that give the same bits on every back end and vectorise over packs.
#pragma once

#include "vulpes/core/pack.hpp"

namespace vulpes {

namespace detail {
/// 2^k for integer-valued k in [-126, 127], through the exponent field.
KOKKOS_INLINE_FUNCTION float exp2_integer(float k) {
  return Kokkos::bit_cast<float>(static_cast<std::int32_t>(k + 127.0f) << 23);
}
template <int N>
Pack<float, N> exp2_integer(Pack<float, N> k) {
  using Ints = typename RawVector<std::int32_t, N>::type;
  const Ints bits = __builtin_convertvector(k.raw + 127.0f, Ints) << 23;
  typename Pack<float, N>::Raw r;
  __builtin_memcpy(&r, &bits, sizeof(r));
  return r;
}
}  // namespace detail

/// e^x for float, relative error below 2e-7 (Cody & Waite reduction, degree-6 minimax polynomial); 0 below -87,
/// saturated at e^88; NaN for NaN.
template <class V>
KOKKOS_INLINE_FUNCTION V exp_float(V x) {
  const V clamped = smaller(larger(x, V(-87.0f)), V(88.0f));
  const V t = clamped * V(1.44269504f);
  const V magic = V(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V k = (t + magic) - magic;
  const V r = multiply_add(k, V(2.12194440e-4f), multiply_add(k, V(-0.693359375f), clamped));
  V p = V(1.9875691500e-4f);
  p = multiply_add(p, r, V(1.3981999507e-3f));
  p = multiply_add(p, r, V(8.3334519073e-3f));
  p = multiply_add(p, r, V(4.1665795894e-2f));
  p = multiply_add(p, r, V(1.6666665459e-1f));
  p = multiply_add(p, r, V(5.0000001201e-1f));
  const V y = (multiply_add(p, r * r, r) + V(1.0f)) * detail::exp2_integer(k);
  const V flushed = select(x < V(-87.0f), V(0.0f), y);
  return flushed + (x - x) * V(0.0f);  // NaN in, NaN out; an infinite x gives NaN and is caught by the guard
}

template <class V>
KOKKOS_INLINE_FUNCTION V exponential(V x) {
  if constexpr (std::is_same_v<scalar_of<V>, float>) {
    return exp_float(x);
  } else if constexpr (lanes<V> == 1) {
    return Kokkos::exp(x);
  } else {
    V r;
    for (int i = 0; i < lanes<V>; ++i) r.set(i, std::exp(x[i]));
    return r;
  }
}

namespace detail {
/// Exponent e and mantissa m in [0.5, 1) with x = m 2^e, for positive normal x.
KOKKOS_INLINE_FUNCTION void split_exponent(float x, float& mantissa, float& exponent) {
  const std::int32_t bits = Kokkos::bit_cast<std::int32_t>(x);
  exponent = static_cast<float>((bits >> 23) - 126);
  mantissa = Kokkos::bit_cast<float>((bits & 0x007fffff) | 0x3f000000);
}
template <int N>
void split_exponent(Pack<float, N> x, Pack<float, N>& mantissa, Pack<float, N>& exponent) {
  using Ints = typename RawVector<std::int32_t, N>::type;
  Ints bits;
  __builtin_memcpy(&bits, &x.raw, sizeof(bits));
  exponent.raw = __builtin_convertvector((bits >> 23) - 126, typename Pack<float, N>::Raw);
  bits = (bits & 0x007fffff) | 0x3f000000;
  __builtin_memcpy(&mantissa.raw, &bits, sizeof(bits));
}
}  // namespace detail

/// ln x for positive normal float, relative error below 2e-7; the smallest normal number stands for anything below it.
template <class V>
KOKKOS_INLINE_FUNCTION V log_float(V x) {
  V m, e;
  detail::split_exponent(larger(x, V(1.17549435e-38f)), m, e);
  const auto small = m < V(0.707106781f);
  e = e - select(small, V(1.0f), V(0.0f));
  m = select(small, m + m, m) - V(1.0f);
  const V s = m * m;
  V p = V(7.0376836292e-2f);
  p = multiply_add(p, m, V(-1.1514610310e-1f));
  p = multiply_add(p, m, V(1.1676998740e-1f));
  p = multiply_add(p, m, V(-1.2420140846e-1f));
  p = multiply_add(p, m, V(1.4249322787e-1f));
  p = multiply_add(p, m, V(-1.6668057665e-1f));
  p = multiply_add(p, m, V(2.0000714765e-1f));
  p = multiply_add(p, m, V(-2.4999993993e-1f));
  p = multiply_add(p, m, V(3.3333331174e-1f));
  const V y = multiply_add(e, V(-2.12194440e-4f), multiply_add(s, multiply_add(p, m, V(-0.5f)), m));
  return multiply_add(e, V(0.693359375f), y) + (x - x) * V(0.0f);
}

template <class V>
KOKKOS_INLINE_FUNCTION V logarithm(V x) {
  if constexpr (std::is_same_v<scalar_of<V>, float>) {
    return log_float(x);
  } else if constexpr (lanes<V> == 1) {
    return Kokkos::log(x);
  } else {
    V r;
    for (int i = 0; i < lanes<V>; ++i) r.set(i, std::log(x[i]));
    return r;
  }
}

}  // namespace vulpes
