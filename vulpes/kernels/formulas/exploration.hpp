// Exploration, branch by branch: epsilon-greedy (Watkins 1989) or a draw from softmax(Q / temperature).
#pragma once

#include "vulpes/core/math.hpp"
#include "vulpes/core/random.hpp"

namespace vulpes::kernels {

/// The greedy action, or with probability `epsilon` a uniform one.
KOKKOS_INLINE_FUNCTION int epsilon_greedy(int greedy, int actions, float epsilon, std::uint32_t explore_word,
                                          std::uint32_t action_word) {
  return uniform_float(explore_word) < epsilon
             ? static_cast<int>(uniform_below(action_word, static_cast<std::uint32_t>(actions)))
             : greedy;
}

/// A draw from softmax(Q / temperature) by inversion; `q(a)` returns Q of action a, `largest` the largest of them.
template <class Value>
KOKKOS_INLINE_FUNCTION int softmax_draw(int actions, float largest, float temperature, std::uint32_t word,
                                        const Value& q) {
  float total = 0.0f;
  for (int a = 0; a < actions; ++a) total += exp_float((q(a) - largest) / temperature);
  float remaining = uniform_float(word) * total;
  for (int a = 0; a < actions - 1; ++a) {
    remaining -= exp_float((q(a) - largest) / temperature);
    if (remaining < 0.0f) return a;
  }
  return actions - 1;
}

}  // namespace vulpes::kernels
