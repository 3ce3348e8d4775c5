// Gradual magnitude pruning (Zhu & Gupta 2017, "To prune, or not to prune", equation 1):
//
//   sparsity(t) = final (1 - (1 - (t - begin) / (end - begin))^3)   for begin <= t <= end, 0 before, `final` after
//
// In each weight matrix [rows, columns] the floor(sparsity x elements) elements of smallest magnitude are pruned. The
// mask is one bit an element of the flat buffer.
#pragma once

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes::kernels {

inline constexpr std::uint32_t mask_bits = 32;  ///< of a mask word; tensors begin at multiples of it

KOKKOS_INLINE_FUNCTION bool is_pruned(const std::uint32_t* mask, std::int64_t element) {
  return (mask[element / mask_bits] >> (element % mask_bits) & 1u) != 0;
}

struct PruningRules {
  double sparsity = 0;
  std::int64_t begin = 0, end = 0;  ///< iterations
};

KOKKOS_INLINE_FUNCTION double cubic_sparsity(const PruningRules& rules, std::int64_t iteration) {
  if (iteration < rules.begin) return 0.0;
  if (iteration >= rules.end) return rules.sparsity;
  const double left = 1.0 - static_cast<double>(iteration - rules.begin) / static_cast<double>(rules.end - rules.begin);
  return rules.sparsity * (1.0 - left * left * left);
}

}  // namespace vulpes::kernels
