// Stratified sampling in integers (Schaul et al. 2016, appendix B.2.1: one draw from each of B equal parts of the
// total).
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// High 64 bits of a b, from 32-bit halves: no compiler extension is needed.
KOKKOS_INLINE_FUNCTION std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t half = 0xffffffffu, a_low = a & half, a_high = a >> 32, b_low = b & half, b_high = b >> 32;
  const std::uint64_t cross = a_high * b_low + (a_low * b_low >> 32);  // at most 2^64 - 2^32: no overflow
  const std::uint64_t middle = a_low * b_high + (cross & half);
  return a_high * b_high + (cross >> 32) + (middle >> 32);
}

/// u = floor((k 2^32 + r) total / (batch 2^32)) for k < batch: below `total`, for any total up to 2^64 - 1.
KOKKOS_INLINE_FUNCTION std::uint64_t stratified_target(std::uint32_t k, std::uint32_t r, std::uint64_t total,
                                                       std::uint32_t batch) {
  const std::uint64_t position = (static_cast<std::uint64_t>(k) << 32) | r;
  const std::uint64_t high = multiply_high(position, total), low = position * total;
  // The product without its last 32 bits, divided by `batch` in two steps of long division; u < 2^64, so both digits of
  // the quotient are below 2^32.
  const std::uint64_t rest = (high % batch << 32) | (low >> 32);
  return (high / batch << 32) | (rest / batch);
}

}  // namespace vulpes::kernels
