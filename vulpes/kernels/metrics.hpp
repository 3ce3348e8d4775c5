// The record of a step: means of what each row reported, written to a ring in device memory; ends the step.
#pragma once

#include "vulpes/kernels/loss.hpp"
#include "vulpes/kernels/optimise.hpp"

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

/// Leaves the sum of squares of each chunk's parameters in `squares` [chunks]; for the epoch's record.
template <class Space>
void weight_squares(const Space& space, const OptimiserWork<Space>& work, const Vector<float, Space>& parameters,
                    const Vector<double, Space>& squares);

}  // namespace vulpes::kernels
