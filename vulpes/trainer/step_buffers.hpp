// Device memory of a training step: one owner, allocated once.
#pragma once

#include "vulpes/kernels/causal.hpp"
#include "vulpes/kernels/loss.hpp"
#include "vulpes/kernels/metrics.hpp"
#include "vulpes/kernels/sample.hpp"

namespace vulpes::trainer {

/// Which buffers a step has besides those it always has.
struct StepParts {
  int batch = 0;
  bool auxiliary = false;              ///< next returns and exposures
  bool hindsight = false;              ///< which rows were relabelled
  bool trace = false;                  ///< goals and donors, for whoever wants to see them
  kernels::FeatureGroups groups = {};  ///< causal measurement
  int causal_rows = 0, causal_records = 0;
};
StepParts step_parts(const io::Config& config, const kernels::FeatureGroups& groups);

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
  Vector<float, Space> next_returns, exposures;  ///< [B], auxiliary loss
  Vector<std::uint8_t, Space> relabelled;        ///< [B], hindsight
  Vector<float, Space> goals;                    ///< [B], traced only
  Vector<std::uint32_t, Space> donors;           ///< [B], traced only
  kernels::CausalBuffers<Space> causal;
  Matrix<double, Space> records;  ///< [steps of an epoch, step_outputs]

  /// The batch as the gather writes it: states straight into the online network's input.
  kernels::Batch<Space> transitions() const {
    return {online.input, actions, rewards, discounts, weights, next_returns, exposures, goals, relabelled, donors};
  }

  /// s, [B, S].
  MatrixRef<const float, Space> states() const {
    return MatrixRef<const float, Space>(online.input.data(), batch, online.input.extent(1));
  }

  StepBuffers() = default;
  /// `records`: steps whose records are kept. In a build with debug checks every buffer starts as NaN.
  StepBuffers(const Space& space, const kernels::NetworkShape& shape, const StepParts& parts, int records);
};

}  // namespace vulpes::trainer
