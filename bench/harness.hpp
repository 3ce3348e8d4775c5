// What all benchmarks share: start-up, context of the results, counters.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "vulpes/core/timing.hpp"
#include "vulpes/kernels/work.hpp"

namespace vulpes::bench {

/// Starts Kokkos and the host BLAS, adds the context, calls `add_benchmarks` and runs what the command line selects: 9
/// randomly interleaved repetitions unless it says otherwise. The return value of main.
int run(int argc, char** argv, void (*add_benchmarks)());

/// Counters: flops, bytes and rows a second, from what one iteration declares.
inline void set_rates(benchmark::State& state, const kernels::Work& work, double rows) {
  using Counter = benchmark::Counter;
  if (work.flops > 0) state.counters["flops"] = Counter(work.flops, Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = Counter(work.bytes, Counter::kIsIterationInvariantRate, Counter::kIs1024);
  state.counters["rows"] = Counter(rows, Counter::kIsIterationInvariantRate);
}

/// The T called `name`, made by `make` when first asked for and kept until Kokkos ends: benchmarks are repeated and
/// interleaved.
template <class T, class Make>
T& kept(const std::string& name, const Make& make) {
  static std::map<std::string, std::unique_ptr<T>> all;
  if (all.empty()) Kokkos::push_finalize_hook([] { all.clear(); });
  std::unique_ptr<T>& one = all[name];
  if (!one) one = make();
  return *one;
}

/// Calls `body` until the benchmark has run long enough; `space` is fenced at both ends of every `group` calls, so that
/// a device's queue is neither left unmeasured nor drained after every call.
template <class Space, class Body>
void measure(benchmark::State& state, const Space& space, const Body& body, int group = 10) {
  for (int i = 0; i < group; ++i) body();
  space.fence("vulpes::bench::warm");
  while (state.KeepRunningBatch(group)) {
    for (int i = 0; i < group; ++i) body();
    space.fence("vulpes::bench::measure");
  }
}

}  // namespace vulpes::bench
