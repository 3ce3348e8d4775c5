// Start and end of the program's numerics: Kokkos, the host threads' floating-point mode, and the host BLAS.
#pragma once

#include <string>

#include "vulpes/core/compat.hpp"

namespace vulpes {

/// Whether Kokkos waits for all devices before and after each launch that something listens to through Kokkos Tools:
/// who takes times there needs it; who looks at a step must do without. A tool that is loaded by KOKKOS_TOOLS_LIBS
/// decides for itself.
enum class ToolFences { no, yes };

/// Lives as long as anything numeric does; create one first in main.
///
/// - OpenBLAS uses the widest kernels that this processor has (an OpenBLAS older than the processor falls back to
/// kernels
///   four times slower), and OpenMP's waiting threads sleep soon. Both are read from the environment while the
///   libraries are loaded (OPENBLAS_CORETYPE, GOMP_SPINCOUNT): where they are not set, this sets them and executes the
///   program again. Each BLAS call runs on one thread; core/gemm splits products over threads itself.
/// - Kokkos is initialised with `threads` host threads (0: all cores).
/// - Every host thread flushes denormal numbers to zero: decaying moments end in them, and each costs over 100 cycles.
class Runtime {
 public:
  explicit Runtime(char** argv, int threads = 0, ToolFences fences = ToolFences::no);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

 private:
  Kokkos::ScopeGuard kokkos_;
};

/// For logs and checkpoints, as in "OpenBLAS 0.3.21, kernels SkylakeX, 2 threads": what the last bits depend on.
std::string host_numerics_description();

}  // namespace vulpes
