// The training guard: which updates are refused, when the last good parameters come back, when training stops.
//
//   norm NaN or Inf                                         -> skip
//   norm > max(floor, factor x running mean), once armed    -> skip; the mean takes min(norm, bound), so that the bound
//                                                              re-opens after a lasting change of scale
//   `patience` skips in a row                               -> roll back, halve the learning rate's multiplier
//   the same after `max_rollbacks` of them                  -> roll back and stop for good
//
// A bound by a running mean of norms: after Seetharaman et al. 2020 ("AutoClip", there a percentile).
#pragma once

#include "vulpes/kernels/formulas/gradient_clip.hpp"
#include "vulpes/kernels/step_state.hpp"

namespace vulpes::kernels {

struct GuardRules {
  double spike_factor = 0;     ///< 0: norms are not bounded
  double spike_floor = 0;      ///< a norm up to this is never a spike
  double norm_rate = 0.01;     ///< weight of a step's norm in the running mean
  std::uint64_t armed_at = 0;  ///< iteration from which spikes are refused (after warm-up and blending)
  std::uint32_t patience = 0;  ///< skips in a row before a rollback; 0: never
  std::uint32_t max_rollbacks = 0;
  std::uint64_t snapshot_every = 0;  ///< accepted updates between snapshots; 0: none are taken
};

/// The counters after a step whose gradient has this norm. Pure: every team of a launch comes to the same verdict.
KOKKOS_INLINE_FUNCTION StepCounters judge(const GuardRules& rules, const StepCounters& now, double norm,
                                          double clip_norm) {
  StepCounters next = now;
  if (now.stopped) {
    next.skip = next.idle = 1;
    return next;
  }
  next.iteration = now.iteration + 1;
  next.gradient_norm = norm;
  const bool finite = Kokkos::isfinite(norm);
  const bool bounded = rules.spike_factor > 0.0 && now.norm_mean > 0.0;
  const double bound = bounded ? Kokkos::fmax(rules.spike_floor, rules.spike_factor * now.norm_mean) : norm;
  const bool spike = finite && norm > bound && now.iteration >= rules.armed_at;
  if (finite) {
    const double capped = Kokkos::fmin(norm, bound);
    next.norm_mean = now.norm_mean > 0.0 ? now.norm_mean + rules.norm_rate * (capped - now.norm_mean) : capped;
  }
  next.skip = !finite || spike ? 1 : 0;
  if (!next.skip) {
    next.clip = clip_factor(norm, clip_norm);
    next.skips_in_a_row = 0;
    next.adam_t = now.adam_t + 1;
    if (rules.snapshot_every > 0 && next.adam_t % rules.snapshot_every == 0) next.snapshot_adam_t = next.adam_t;
    return next;
  }
  next.clip = 0.0;
  next.fault = finite ? Fault::spike : Fault::not_finite;
  next.fault_iteration = now.iteration;
  next.fault_norm = norm;
  ++next.skipped;
  ++next.skips_in_a_row;
  if (rules.patience > 0 && next.skips_in_a_row >= rules.patience) {
    if (now.rollbacks >= rules.max_rollbacks)
      next.stopped = 1;
    else
      ++next.rollbacks;
    next.skips_in_a_row = 0;
    next.adam_t = now.snapshot_adam_t;
    next.rate_multiplier = now.rate_multiplier * 0.5;
  }
  return next;
}

/// The step that led from `now` to `next` restores the snapshot.
KOKKOS_INLINE_FUNCTION bool rolls_back(const StepCounters& now, const StepCounters& next) {
  return next.rollbacks != now.rollbacks || next.stopped != now.stopped;
}
/// ... or becomes the snapshot.
KOKKOS_INLINE_FUNCTION bool takes_snapshot(const StepCounters& now, const StepCounters& next) {
  return !next.skip && next.snapshot_adam_t != now.snapshot_adam_t;
}

}  // namespace vulpes::kernels
