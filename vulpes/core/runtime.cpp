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

void choose_blas_kernels([[maybe_unused]] char** argv) {
#if defined(__x86_64__)
  // "Prescott" is what a dynamic OpenBLAS picks for a processor newer than itself.
  if (std::getenv("OPENBLAS_CORETYPE") || std::string(openblas_get_corename()) != "Prescott") return;
  __builtin_cpu_init();
  const char* kernels = nullptr;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    kernels = "SkylakeX";
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels = "Haswell";
  }
  if (!kernels || setenv("OPENBLAS_CORETYPE", kernels, 1) != 0) return;
  execv("/proc/self/exe", argv);  // only returns when it fails: then the slow kernels do
#endif
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

Kokkos::InitializationSettings settings(char** argv, int threads) {
  choose_blas_kernels(argv);
  Kokkos::InitializationSettings s;
  s.set_disable_warnings(true);
  if (threads > 0) s.set_num_threads(threads);
  return s;
}

}  // namespace

Runtime::Runtime(char** argv, int threads) : kokkos_(settings(argv, threads)) {
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
