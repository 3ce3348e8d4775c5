// Stochastic depth (Huang et al. 2016, "Deep networks with stochastic depth"): residual block l of L is kept with
// probability q_l = 1 - (l / L) (1 - survival), l = 1 .. L, and counts 1 / q_l while it is.
#pragma once

#include "vulpes/core/random.hpp"
#include "vulpes/core/schedule.hpp"

namespace vulpes::kernels {

/// Which rows of a pass leave out blocks, and where the draws of a step come from.
struct StochasticDepth {
  RandomKey key;
  const std::uint64_t* iteration = nullptr;  ///< in device memory; not read when `rows` is 0
  Schedule survival = Schedule::constant(1);
  int rows = 0;  ///< rows [0, rows) of the pass; all others keep every block whole
};

/// q_l.
KOKKOS_INLINE_FUNCTION double block_survival(int l, int blocks, double survival) {
  return 1 - (1 - survival) * l / blocks;
}

/// f_l = m_l / q_l with m_l ~ Bernoulli(q_l), one draw a step: 0, or 1 / q_l. Exactly 1 with survival 1.
KOKKOS_INLINE_FUNCTION double block_factor(const StochasticDepth& d, int l, int blocks) {
  const std::uint64_t iteration = *d.iteration;
  const double survival = d.survival(static_cast<std::int64_t>(iteration));
  if (survival >= 1) return 1;
  const double q = block_survival(l, blocks, survival);
  const auto words = random_words(d.key, Purpose::stochastic_depth, iteration, static_cast<std::uint32_t>(l));
  return uniform_float(words[0]) < q ? 1 / q : 0;
}

/// f_l of block `block` in 1 .. `blocks`, on demand: 1 without reading anything where depth.rows is 0.
template <class Real>
struct BlockFactor {
  StochasticDepth depth;
  int block, blocks;
  KOKKOS_INLINE_FUNCTION Real operator()() const {
    return depth.rows > 0 ? static_cast<Real>(block_factor(depth, block, blocks)) : Real(1);
  }
};

}  // namespace vulpes::kernels
