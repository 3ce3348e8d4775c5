// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3"), from Random123. Nothing carries a generator state: a draw is a pure function of
// (seed, fold, purpose, iteration, index, block), so results do not depend on scheduling, resume or logging.
#pragma once

#include <Random123/philox.h>

#include <cstdint>

#include "vulpes/core/compat.hpp"

namespace vulpes {

/// What a draw is for. Values are part of every checkpoint's meaning: append, never renumber.
enum class Purpose : std::uint32_t {
  initial_weights = 1,
  replay_sample = 2,
  explore = 3,
  explore_action = 4,
  episode_start = 5,
  episode_goal = 6,
  market_component = 7,
  market_walk = 8,
  hindsight = 9,
  stochastic_depth = 10,
  causal = 11,
  value_iteration = 12,
  bootstrap = 13,
  test = 14,
  market_regime = 15,
  spectral_start = 16,
};

/// Seed and fold of a run; a trivially copyable kernel argument.
struct RandomKey {
  std::uint32_t seed = 0;
  std::uint32_t fold = 0;
};

/// Four independent 32-bit words for (purpose, iteration, index, block); iteration below 2^56, block below 2^8.
KOKKOS_INLINE_FUNCTION r123::Philox4x32::ctr_type random_words(RandomKey key, Purpose purpose, std::uint64_t iteration,
                                                               std::uint32_t index, std::uint32_t block = 0) {
  r123::Philox4x32::ctr_type counter = {{index, static_cast<std::uint32_t>(iteration),
                                         static_cast<std::uint32_t>(iteration >> 32) | (block << 24),
                                         static_cast<std::uint32_t>(purpose)}};
  r123::Philox4x32::key_type philox_key = {{key.seed, key.fold}};
  return r123::Philox4x32()(counter, philox_key);
}

/// Uniform in [0, 1) with 24 bits.
KOKKOS_INLINE_FUNCTION float uniform_float(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Uniform in (0, 1) with 52 bits from two words; never 0, so that a logarithm is finite.
KOKKOS_INLINE_FUNCTION double uniform_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

/// Uniform integer in [0, bound) by multiplication (bias below bound / 2^32).
KOKKOS_INLINE_FUNCTION std::uint32_t uniform_below(std::uint32_t word, std::uint32_t bound) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(word) * bound) >> 32);
}

/// Two independent standard normal numbers from four words (Box & Muller 1958), in double.
struct NormalPair {
  double first, second;
};
KOKKOS_INLINE_FUNCTION NormalPair normal_pair(const r123::Philox4x32::ctr_type& w) {
  const double radius = Kokkos::sqrt(-2.0 * Kokkos::log(uniform_double(w[0], w[1])));
  const double angle = 6.283185307179586476925286766559 * uniform_double(w[2], w[3]);
  return {radius * Kokkos::cos(angle), radius * Kokkos::sin(angle)};
}

}  // namespace vulpes
