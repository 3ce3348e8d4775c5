// The record of a step: means of what each row reported, written to a ring in device memory; ends the step.
#pragma once

#include "vulpes/kernels/loss.hpp"
#include "vulpes/kernels/optimise.hpp"
#include "vulpes/kernels/sample.hpp"

namespace vulpes::kernels {

/// Columns of a record: the row outputs' means over the batch, the mean square of Q(s, a), figures of the update, the
/// gradient norm of each tensor group.
enum StepOutput : int {
  q_square_out = row_outputs,
  gradient_norm_out,
  clip_out,
  skip_out,
  rate_multiplier_out,
  group_norm_out,
  step_outputs = group_norm_out + tensor_groups
};

/// Writes record `iteration % ring rows` of `ring` [records, step_outputs], then makes `state.next` the present. The
/// last launch of a step: whoever ran before it has seen the old counters. Once training stopped nothing is written.
template <class Space, class Real>
void finish_step(const Space& space, const LossBuffers<Space, Real>& loss, const OptimiserWork<Space>& work,
                 const StepStateRef<Space>& state, const Matrix<double, Space>& ring);

/// What the end of an epoch tells the host besides records, as doubles.
enum EpochFigure : int {
  adam_t_figure,
  rate_multiplier_figure,
  auxiliary_multiplier_figure,
  rollbacks_figure,
  stopped_figure,
  fault_figure,
  fault_iteration_figure,
  saturated_figure,
  rejected_figure,
  largest_figure,
  pruned_figure,                                      ///< elements that the mask holds at zero
  weight_norm_figure,                                 ///< by tensor group
  sigma_figure = weight_norm_figure + tensor_groups,  ///< by matrix of the spectral norm
};

/// Where epoch_figures reads; empty Views where a part is off.
template <class Space>
struct EpochSources {
  OptimiserWork<Space> work;
  Vector<float, Space> parameters;
  Vector<std::uint32_t, Space> mask;
  Vector<float, Space> sigma;
  StepStateRef<Space> state;
  Kokkos::View<PriorityCounts, MemoryOf<Space>> counts;
  Kokkos::View<std::uint32_t, MemoryOf<Space>> largest;
  Matrix<double, Space> deltas;   ///< causal measurements, [records, G]
  Matrix<double, Space> records;  ///< of steps
  Vector<double, Space> squares;  ///< work space, [chunks]

  int figures() const { return sigma_figure + static_cast<int>(sigma.extent(0)); }
  std::int64_t size() const { return figures() + static_cast<std::int64_t>(deltas.size() + records.size()); }
};

/// Memory that device and host both address.
using SharedFigures = Kokkos::View<double*, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace>;

/// Writes figures, deltas and records one after the other into `out` [sources.size()]. Three launches an epoch.
template <class Space>
void epoch_figures(const Space& space, const EpochSources<Space>& sources, const SharedFigures& out);

}  // namespace vulpes::kernels
