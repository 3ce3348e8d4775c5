// Gradient norm, guard, clipping, AdamW, mask and averaging: two passes over the flat buffers.
#pragma once

#include "vulpes/core/schedule.hpp"
#include "vulpes/kernels/formulas/guard.hpp"
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

struct OptimiserRules {
  Schedule rate;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-5;
  double weight_decay = 0;  ///< of weight matrices; biases do not decay
  double clip_norm = 10;
  double tau = 0.01;
  GuardRules guard;
};

/// Groups of tensors whose gradient and weight norms are reported apart; bias vectors span all heads.
enum class TensorGroup : std::uint8_t { trunk, blocks, value, exposure, order, urgency, head_biases };
inline constexpr int tensor_groups = 7;
inline constexpr const char* tensor_group_names[tensor_groups] = {"trunk", "blocks",  "value",      "exposure",
                                                                  "order", "urgency", "head_biases"};
TensorGroup group_of(const std::string& tensor);

/// The table of chunks and the partial sums of one layout.
template <class Space>
struct OptimiserWork {
  Vector<Chunk, Space> chunks;
  Vector<std::uint8_t, Space> decays;  ///< by tensor: 1 for weight matrices
  Vector<TensorGroup, Space> groups;   ///< by chunk
  Vector<double, Space> squares;       ///< by chunk: sum of squared gradients
  OptimiserWork() = default;
  OptimiserWork(const Space& space, const ParameterLayout& layout);
  static constexpr int chunk_elements = 4096;
};

/// What a rollback restores.
template <class Space, class Real>
struct Snapshot {
  Vector<Real, Space> parameters, target, first_moment, second_moment;  ///< each [layout.size()]
  Vector<std::uint32_t, Space> mask;
  Vector<Real, Space> singular;  ///< one half of the singular vectors
};

template <class Space, class Real>
struct OptimiserBuffers {
  Vector<Real, Space> parameters, target, gradient, first_moment, second_moment;  ///< each [layout.size()]
  Vector<std::uint32_t, Space> mask;  ///< a bit an element, set where it is pruned; empty without pruning
  Vector<Real, Space> singular;       ///< spectral norm's vectors, two halves (spectral.hpp); may be empty
  Snapshot<Space, Real> snapshot;     ///< empty where rollbacks are off
};

/// Pass 1: each team leaves its chunk's sum of squares in work.squares, pruned elements left out. Reads 4 bytes a
/// parameter.
template <class Space, class Real>
void gradient_squares(const Space& space, const OptimiserWork<Space>& work,
                      const OptimiserBuffers<Space, Real>& buffers);

/// Pass 2: every team adds up work.squares itself (same order, same bits), comes to the guard's verdict, then clips and
/// updates its chunk: moments, parameters, target; pruned elements stay 0. A refused step changes nothing but
/// `state.next`; a rollback restores the snapshot, every `snapshot_every`-th update becomes it. Counters advance in
/// finish_step. Reads 5 and writes 4 arrays of 4 bytes a parameter.
template <class Space, class Real>
void optimise(const Space& space, const OptimiserWork<Space>& work, const OptimiserRules& rules,
              const OptimiserBuffers<Space, Real>& buffers, const StepStateRef<Space>& state);

}  // namespace vulpes::kernels
