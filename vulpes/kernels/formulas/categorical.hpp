// The categorical distribution over atoms: softmax, expectation, entropy. Vectors over atoms are columns with a stride.
#pragma once

#include "vulpes/core/math.hpp"
#include "vulpes/kernels/formulas/support.hpp"

namespace vulpes::kernels {

/// Largest logit and log sum_z exp(l_z - largest) of a column of Z logits.
template <class V>
struct SoftmaxScale {
  V largest;
  V sum;  ///< sum_z exp(l_z - largest)
};

/// `logit(z)` returns the logit of atom z; `keep(z, e)` receives e = exp(l_z - largest), after which l_z is not read
/// again, so it may be overwritten. p_z = e / sum. Z exponentials.
template <class V, class Logit, class Keep>
KOKKOS_INLINE_FUNCTION SoftmaxScale<V> softmax(int atoms, const Logit& logit, const Keep& keep) {
  V largest = logit(0);
  for (int z = 1; z < atoms; ++z) largest = larger(logit(z), largest);
  V sum = V(scalar_of<V>(0));
  for (int z = 0; z < atoms; ++z) {
    const V e = exponential(logit(z) - largest);
    sum += e;
    keep(z, e);
  }
  return {largest, sum};
}

/// Q = sum_z z p(z), p = softmax of the logits. Z exponentials. A NaN logit gives NaN.
template <class V, class Logit>
KOKKOS_INLINE_FUNCTION V expected_value(const Support<scalar_of<V>>& support, const Logit& logit) {
  V largest = logit(0);
  for (int z = 1; z < support.atoms; ++z) largest = larger(logit(z), largest);
  V sum = V(scalar_of<V>(0)), weighted = V(scalar_of<V>(0));
  for (int z = 0; z < support.atoms; ++z) {
    const V e = exponential(logit(z) - largest);
    sum += e;
    weighted = multiply_add(e, V(static_cast<scalar_of<V>>(z)), weighted);
  }
  return multiply_add(V(support.spacing), weighted / sum, V(support.vmin));
}

/// Index of the largest of `count` values; the first one wins a tie.
template <class V, class Value>
KOKKOS_INLINE_FUNCTION V argmax(int count, const Value& value) {
  V best = value(0), index = V(scalar_of<V>(0));
  for (int a = 1; a < count; ++a) {
    const V q = value(a);
    index = select(q > best, V(static_cast<scalar_of<V>>(a)), index);
    best = larger(q, best);
  }
  return index;
}

}  // namespace vulpes::kernels
