// What one training step changes besides buffers: counters and flags in device memory.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes::kernels {

/// One element in device memory; part of every checkpoint.
struct StepState {
  std::uint64_t iteration = 0;       ///< steps begun: random streams, schedules; always advances
  std::uint64_t next_iteration = 0;  ///< written by the update, so that the last launch can advance `iteration` unraced
  std::uint64_t adam_t = 0;          ///< updates accepted: bias correction
  std::uint64_t skipped = 0;         ///< updates refused for a NaN or Inf
  std::uint32_t skip = 0;            ///< this step's update is refused
  std::uint32_t reserved = 0;
  double gradient_norm = 0;  ///< of this step, before clipping
  double clip = 1;           ///< factor applied
};

template <class Space>
using StepStateRef = Kokkos::View<StepState, MemoryOf<Space>>;

}  // namespace vulpes::kernels
