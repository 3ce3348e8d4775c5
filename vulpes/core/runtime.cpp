#include "vulpes/core/runtime.hpp"

#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "vulpes/core/spaces.hpp"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace vulpes {
namespace {

/// Sets `name` unless the user has; true if it did.
bool set_default(const char* name, const char* value) { return !std::getenv(name) && setenv(name, value, 1) == 0; }

/// The kernels that this processor should run, where OpenBLAS does not know it; else null.
const char* better_blas_kernels() {
#if defined(__x86_64__)
  // "Prescott" is what a dynamic OpenBLAS picks for a processor newer than itself.
  if (std::string(openblas_get_corename()) != "Prescott") return nullptr;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

/// Libraries read these while they are loaded, so a change means executing the program again.
void choose_library_settings(char** argv) {
  bool changed = false;
  if (const char* kernels = better_blas_kernels()) changed |= set_default("OPENBLAS_CORETYPE", kernels);
  // Waiting threads spin for some 50 us, longer than any gap between launches, then sleep: with the default of some 15
  // ms a busy neighbour on one core makes a run ten times slower.
  if (!std::getenv("OMP_WAIT_POLICY")) changed |= set_default("GOMP_SPINCOUNT", "1000");
  if (!changed) return;
  // By its path, so that it keeps its name in process lists. Only returns when it fails: then it is slower, not wrong.
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return;
  path[length] = '\0';
  execv(path, argv);
}

void flush_denormals() {
#if defined(__SSE__)
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _mm_setcsr(_mm_getcsr() | 0x0040);  // denormal inputs are zero as well
#elif defined(__aarch64__)
  std::uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  __asm__ volatile("msr fpcr, %0" ::"r"(mode | (1ULL << 24)));
#endif
}

Kokkos::InitializationSettings settings(char** argv, int threads, ToolFences fences) {
  choose_library_settings(argv);
  if (fences == ToolFences::no) {
    Kokkos::Tools::Experimental::set_request_tool_settings_callback(
        [](std::uint32_t, Kokkos_Tools_ToolSettings* s) { s->requires_global_fencing = false; });
  }
  Kokkos::InitializationSettings s;
  s.set_disable_warnings(true);
  if (threads > 0) s.set_num_threads(threads);
  return s;
}

}  // namespace

Runtime::Runtime(char** argv, int threads, ToolFences fences) : kokkos_(settings(argv, threads, fences)) {
  Kokkos::Tools::Experimental::set_request_tool_settings_callback(nullptr);  // it was heard
  const Kokkos::DefaultHostExecutionSpace host;
  Kokkos::parallel_for("vulpes::runtime::flush_denormals", range(host, host.concurrency()),
                       [](std::int64_t) { flush_denormals(); });
  flush_denormals();
  openblas_set_num_threads(1);  // after Kokkos: it changes OpenMP's default too
}

std::string host_numerics_description() {
  std::istringstream config(openblas_get_config());
  std::string name, version;
  config >> name >> version;
  return name + " " + version + ", kernels " + openblas_get_corename() + ", " +
         std::to_string(Kokkos::DefaultHostExecutionSpace().concurrency()) + " threads";
}

}  // namespace vulpes
