// Device memory of a training step: one owner, allocated once.
#pragma once

#include "vulpes/kernels/loss.hpp"
#include "vulpes/kernels/metrics.hpp"
#include "vulpes/kernels/sample.hpp"

namespace vulpes::trainer {

/// Everything that a step writes and the next one overwrites. A captured graph holds these addresses, so it is keyed on
/// `generation`; a step with buffers of another generation is an error, never a silent use of freed memory.
template <class Space>
struct StepBuffers {
  std::uint64_t generation = 0;
  int batch = 0;
  kernels::Activations<Space, float> online;       ///< rows [0, B): s; rows [B, 2B): s'
  kernels::Activations<Space, float> target_next;  ///< s'; its input is an alias of online's second half
  kernels::LossBuffers<Space, float> loss;
  kernels::BackwardBuffers<Space, float> backward;
  kernels::Draws<Space> draws;          ///< sampled rows
  Matrix<std::uint8_t, Space> actions;  ///< [D, B]
  Vector<float, Space> rewards, discounts, weights;
  Matrix<double, Space> records;  ///< [steps of an epoch, step_outputs]

  /// The batch as the gather writes it: states straight into the online network's input.
  kernels::Batch<Space> transitions() const { return {online.input, actions, rewards, discounts, weights}; }

  StepBuffers() = default;
  /// `records`: steps whose records are kept. In a build with debug checks every buffer starts as NaN.
  StepBuffers(const Space& space, const kernels::NetworkShape& shape, int batch, int records);
};

}  // namespace vulpes::trainer
