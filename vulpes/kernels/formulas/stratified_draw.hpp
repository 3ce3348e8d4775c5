// Stratified sampling in integers (Schaul et al. 2016, appendix B.2.1: one draw from each of B equal parts of the total).
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

/// floor((k 2^32 + r) total / (batch 2^32)) for k < batch: below `total` for any total up to 2^64 - 1. The product has up
/// to 128 bits; it is divided in two steps of long division, so no compiler extension is needed.
KOKKOS_INLINE_FUNCTION std::uint64_t stratified_target(std::uint32_t k, std::uint32_t r, std::uint64_t total, std::uint32_t batch) {
  // (k 2^32 + r) total = k total 2^32 + r total. With total = q batch + s: k total = k q batch + k s.
  const std::uint64_t q = total / batch, s = total % batch;
  // k total / batch = k q + (k s) / batch, remainder (k s) % batch; k, s < 2^32.
  const std::uint64_t ks = static_cast<std::uint64_t>(k) * s;
  const std::uint64_t whole = static_cast<std::uint64_t>(k) * q + ks / batch, rest = ks % batch;
  // What remains is (rest 2^32 + r total) / (batch 2^32) with r total = r q batch + r s:
  // = (rest 2^32 + r s) / (batch 2^32) + r q / 2^32.
  const std::uint64_t fraction_high = static_cast<std::uint64_t>(r) * (q >> 32);            // whole part of r q / 2^32, high half
  const std::uint64_t low_product = static_cast<std::uint64_t>(r) * (q & 0xffffffffULL);    // r (q mod 2^32)
  const std::uint64_t low_whole = low_product >> 32, low_rest = low_product & 0xffffffffULL;
  // (low_rest batch + rest 2^32 + r s) / (batch 2^32) is 0, 1 or 2; each term is below batch 2^32.
  const std::uint64_t rs = static_cast<std::uint64_t>(r) * s;
  const std::uint64_t limit = static_cast<std::uint64_t>(batch) << 32;
  std::uint64_t carry = 0, sum = low_rest * batch;
  const auto add = [&](std::uint64_t term) {
    const bool over = sum >= limit - term;
    sum = over ? sum - (limit - term) : sum + term;
    carry += over;
  };
  add(rest << 32);
  add(rs);
  return whole + fraction_high + low_whole + carry;
}

}  // namespace vulpes::kernels
