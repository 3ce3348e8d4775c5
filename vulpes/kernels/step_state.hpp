// What one training step changes besides buffers: counters, multipliers and the guard's memory, in device memory.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes::kernels {

/// Why a step was refused.
enum class Fault : std::uint32_t { none, not_finite, spike };

struct StepCounters {
  std::uint64_t iteration = 0;        ///< steps begun: random streams, schedules; always advances
  std::uint64_t adam_t = 0;           ///< updates accepted: bias correction
  std::uint64_t skipped = 0;          ///< steps refused so far
  std::uint64_t snapshot_adam_t = 0;  ///< adam_t of the snapshot that a rollback restores
  std::uint64_t fault_iteration = 0;  ///< of the last refused step
  double fault_norm = 0;              ///< its gradient norm
  double gradient_norm = 0;           ///< of this step, before clipping
  double clip = 1;                    ///< factor applied to this step's gradient
  double norm_mean = 0;               ///< running mean of the norm, capped at the guard's bound
  double rate_multiplier = 1;         ///< times the learning rate's schedule; halved by every rollback
  double auxiliary_multiplier = 1;    ///< times the auxiliary loss' weight; the host may set it between launches
  std::uint32_t skip = 0;             ///< this step's update is refused
  std::uint32_t skips_in_a_row = 0;
  std::uint32_t rollbacks = 0;
  std::uint32_t stopped = 0;  ///< sticky: every later step changes nothing
  Fault fault = Fault::none;  ///< of the last refused step
  std::uint32_t idle = 0;     ///< training had stopped before this step: it has no record
};

/// One element in device memory; part of every checkpoint. A step reads `now`; its update writes `next` alone, so that
/// no team sees a counter that another one has advanced; the step's last launch makes `next` the present.
struct StepState {
  StepCounters now, next;
};

template <class Space>
using StepStateRef = Kokkos::View<StepState, MemoryOf<Space>>;

}  // namespace vulpes::kernels
