// Gradient norm, clipping, AdamW and averaging: two passes over the flat buffers.
#pragma once

#include "vulpes/core/schedule.hpp"
#include "vulpes/kernels/network.hpp"
#include "vulpes/kernels/step_state.hpp"

namespace vulpes::kernels {

struct OptimiserRules {
  Schedule rate;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-5;
  double weight_decay = 0;  ///< of weight matrices; biases do not decay
  double clip_norm = 10;
  double tau = 0.01;
};

/// The table of chunks and the partial sums of one layout.
template <class Space>
struct OptimiserWork {
  Vector<Chunk, Space> chunks;
  Vector<std::uint8_t, Space> decays;  ///< by tensor: 1 for weight matrices
  Vector<double, Space> squares;       ///< by chunk: sum of squared gradients
  OptimiserWork() = default;
  OptimiserWork(const Space& space, const ParameterLayout& layout);
  static constexpr int chunk_elements = 4096;
};

template <class Space, class Real>
struct OptimiserBuffers {
  Vector<Real, Space> parameters, target, gradient, first_moment, second_moment;  ///< each [layout.size()]
};

/// Pass 1: each team leaves its chunk's sum of squares in work.squares. Reads 4 bytes a parameter.
template <class Space, class Real>
void gradient_squares(const Space& space, const OptimiserWork<Space>& work,
                      const OptimiserBuffers<Space, Real>& buffers);

/// Pass 2: every team adds up work.squares itself (same order, same bits), clips and updates its chunk: moments,
/// parameters, target. When the norm is not finite nothing changes but the skip flag and the clip of `state`; counters
/// advance in finish_step. Reads 5 and writes 4 arrays of 4 bytes a parameter.
template <class Space, class Real>
void optimise(const Space& space, const OptimiserWork<Space>& work, const OptimiserRules& rules,
              const OptimiserBuffers<Space, Real>& buffers, const StepStateRef<Space>& state);

}  // namespace vulpes::kernels
