// What an intervention on a group of inputs does to Q: do(x_g := x_g of another row) (Pearl 2009, "Causality", section
// 3.2; with a random donor it is the permutation importance of Breiman 2001, section 10, taken of Q in place of the
// error).
//
//   delta_g = mean |Q - Q_do(g)| / mean |Q|, over the rows of the measurement and all actions of all branches
#pragma once

#include "vulpes/core/random.hpp"

namespace vulpes::kernels {

/// The row of a batch of `batch` >= 2 rows that gives its inputs of group `group` to row `row`: uniform among the
/// others. `rows`: rows of the measurement, k = 0 ... rows - 1, where k is the position of `row` among them.
KOKKOS_INLINE_FUNCTION std::uint32_t donor_row(RandomKey key, std::uint64_t iteration, std::uint32_t group,
                                               std::uint32_t k, std::uint32_t rows, std::uint32_t row,
                                               std::uint32_t batch) {
  const std::uint32_t word = random_words(key, Purpose::causal, iteration, group * rows + k)[0];
  const std::uint32_t other = uniform_below(word, batch - 1);
  return other < row ? other : other + 1;
}

/// `change` = sum |Q - Q_do|, `size` = sum |Q|; 0 / 0, which is undefined and a NaN, when all Q are 0.
KOKKOS_INLINE_FUNCTION double relative_change(double change, double size) { return (size > 0.0 ? change : 0.0) / size; }

}  // namespace vulpes::kernels
