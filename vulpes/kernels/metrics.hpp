// The record of a step: means of what each row reported, written to a ring in device memory; ends the step.
#pragma once

#include "vulpes/kernels/loss.hpp"
#include "vulpes/kernels/step_state.hpp"

namespace vulpes::kernels {

/// Columns of a record: the row outputs' means over the batch, then these.
enum StepOutput : int { gradient_norm_out = row_outputs, clip_out, skip_out, step_outputs };

/// Writes record `iteration % ring rows` of `ring` [records, step_outputs], then advances the counters of `state`:
/// always `iteration`; `adam_t` unless the step was skipped, `skipped` if it was. The last launch of a step: whoever
/// ran before it has seen the old counters.
template <class Space, class Real>
void finish_step(const Space& space, const LossBuffers<Space, Real>& loss, const StepStateRef<Space>& state,
                 const Matrix<double, Space>& ring);

}  // namespace vulpes::kernels
