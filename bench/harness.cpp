#include "harness.hpp"

#include <string>

#include "commit.hpp"
#include "vulpes/core/gemm.hpp"
#include "vulpes/core/runtime.hpp"

namespace vulpes::bench {
namespace {

std::string back_ends() {
  std::string names;
#define VULPES_NAME(S) names += (names.empty() ? "" : ", ") + std::string(S::name());
  VULPES_FOR_EACH_SPACE(VULPES_NAME)
#undef VULPES_NAME
  return names;
}

void add_context() {
  benchmark::AddCustomContext("commit", VULPES_BENCH_COMMIT);
  benchmark::AddCustomContext("kokkos", std::to_string(KOKKOS_VERSION / 10000) + "." +
                                            std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
                                            std::to_string(KOKKOS_VERSION % 100));
  benchmark::AddCustomContext("back_ends", back_ends());
  benchmark::AddCustomContext("space", DefaultSpace::name());
  benchmark::AddCustomContext("threads", std::to_string(Kokkos::DefaultHostExecutionSpace().concurrency()));
  benchmark::AddCustomContext("gemm", gemm_description<DefaultSpace>());
  benchmark::AddCustomContext("host_numerics", host_numerics_description());
#if defined(__VERSION__)
  benchmark::AddCustomContext("compiler", __VERSION__);
#endif
}

}  // namespace

int run(int argc, char** argv, void (*add_benchmarks)()) {
  const Runtime runtime(argv, 0, ToolFences::yes);
  // Defaults come first: what the user gives afterwards wins.
  std::string defaults[] = {"--benchmark_repetitions=9", "--benchmark_enable_random_interleaving=true",
                            "--benchmark_min_time=0.2", "--benchmark_counters_tabular=true",
                            "--benchmark_display_aggregates_only=true"};
  std::vector<char*> arguments = {argv[0]};
  for (std::string& d : defaults) arguments.push_back(d.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  add_context();
  add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace vulpes::bench
