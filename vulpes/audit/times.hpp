// Where a step's time goes, from the kernels that ran in it.
#pragma once

#include <string>
#include <vector>

#include "vulpes/audit/trace.hpp"

namespace vulpes::audit {

/// One part of a step; medians over steps.
struct PartTime {
  std::string part;
  double seconds = 0;     ///< in which at least one of its kernels ran
  double overlapped = 0;  ///< share of that in which another part's kernel ran too
  double kernels = 0;
};

struct StepTimes {
  std::vector<PartTime> parts;  ///< in the order of trainer/step.hpp, those that ran
  double span = 0;              ///< from the first kernel's begin to the last one's end
  double busy = 0;              ///< of it, in which a kernel ran
  double period = 0;            ///< from begin to begin of steps with nothing between them; 0: none
  std::int64_t steps = 0;
};

/// Of the kernels in Window::step.
StepTimes step_times(const std::vector<KernelRun>& kernels);
/// A table for people; of milliseconds.
std::string to_text(const StepTimes& times);

}  // namespace vulpes::audit
