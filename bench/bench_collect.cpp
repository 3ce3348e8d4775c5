// Collection and backtest: bars of all accounts a second, network included.
#include "training.hpp"

namespace vulpes::bench {
namespace {

using Space = DefaultSpace;

void collect(benchmark::State& state) {
  const int envs = static_cast<int>(state.range(0));
  const Training<Space>& t = kept<Training<Space>>("collect/" + std::to_string(envs), [&] {
    Reference r = demo;
    r.envs = envs;
    return std::make_unique<Training<Space>>(r);
  });
  measure(state, t.space, [&] { t.collect_bar(); });
  set_rates(state, kernels::total_work(t.sizes, kernels::collection_launches(t.sizes, envs)), envs);
}

/// Greedy walks of 512 bars, side by side, as validation runs them; set-up and the copy of the records included.
void backtest(benchmark::State& state) {
  const Training<Space>& t = training<Space>(demo);
  const auto walks = trainer::walks_of(t.data, t.data.folds.front().validation, 512);
  const evaluator::Actor<Space> actor{t.learner->network, t.rules.support, t.learner->buffers.parameters};
  std::size_t bars = 0, longest = 0;
  for (const evaluator::Walk& w : walks) {
    bars += w.end - w.begin - 1;
    longest = std::max<std::size_t>(longest, w.end - w.begin - 1);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(evaluator::backtest(t.space, actor, t.table, t.collect_arguments.rules, 512, walks));
  }
  const int accounts = static_cast<int>(walks.size());
  kernels::Work work = kernels::total_work(t.sizes, kernels::backtest_launches(t.sizes, accounts));
  work.flops *= static_cast<double>(longest);
  work.bytes *= static_cast<double>(longest);
  set_rates(state, work, static_cast<double>(bars));
}

void add_benchmarks() {
  benchmark::RegisterBenchmark("collect/bar", collect)
      ->Arg(128)
      ->Arg(1024)
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
  benchmark::RegisterBenchmark("backtest/walks", backtest)->Unit(benchmark::kMillisecond)->UseRealTime();
}

}  // namespace
}  // namespace vulpes::bench

int main(int argc, char** argv) { return vulpes::bench::run(argc, argv, vulpes::bench::add_benchmarks); }
