// A training step: whole, by phase, and against its matrix products alone.
//   bench_step --launches   prints the time of every launch instead
#include <cstdio>
#include <cstring>
#include <map>

#include "harness.hpp"
#include "launch_times.hpp"
#include "step_products.hpp"
#include "training.hpp"
#include "vulpes/core/runtime.hpp"

namespace vulpes::bench {
namespace {

using Space = DefaultSpace;
constexpr Reference references[] = {demo, demo_spectral, small_reference};

/// Steps whose launches are timed together.
constexpr int group = 10;

/// "sample", "forward", ... of a label "vulpes::forward::trunk1"; launches of the priorities' way back are
/// "priorities".
std::string phase_of(const std::string& label) {
  if (label == "vulpes::sample::priorities" || label == "vulpes::segment_tree::update") return "priorities";
  const std::size_t begin = label.rfind("vulpes::", 0) == 0 ? 8 : 0;
  return label.substr(begin, label.find("::", begin) - begin);
}

void step(benchmark::State& state, Reference reference) {
  const Training<Space>& t = training<Space>(reference);
  measure(
      state, t.space, [&] { t.step(); }, group);
  set_rates(state, kernels::total_work(t.sizes, kernels::training_step_launches(t.sizes, reference.batch)),
            reference.batch);
}

/// Milliseconds a step of every phase; "between" is what passes outside launches.
void phases(benchmark::State& state, Reference reference) {
  const Training<Space>& t = training<Space>(reference);
  for (int i = 0; i < group; ++i) t.step();
  std::map<std::string, std::vector<double>> by_phase;
  std::vector<double> all;
  LaunchTimes times;
  while (state.KeepRunningBatch(group)) {
    const double began = seconds_now();
    for (int i = 0; i < group; ++i) t.step();
    t.space.fence("vulpes::bench::phases");
    const double whole = seconds_now() - began;
    std::map<std::string, double> sums;
    double launched = 0;
    for (const TimedLaunch& l : times.take()) {
      sums[phase_of(l.label)] += l.seconds;
      launched += l.seconds;
    }
    sums["between"] = whole - launched;
    for (const auto& [phase, seconds] : sums) by_phase[phase].push_back(1e3 * seconds / group);
    all.push_back(1e3 * whole / group);
  }
  for (const auto& [phase, ms] : by_phase) state.counters[phase + "_ms"] = median(ms);
  state.counters["step_ms"] = median(all);
}

/// The step against the floor of its products, taken in turns: neighbours on a busy machine disturb both alike.
/// Counters are medians; the ratio is the median of each turn's.
void over_products(benchmark::State& state, Reference reference) {
  const Training<Space>& t = training<Space>(reference);
  const StepProducts& products = kept<StepProducts>(reference.name, [&] {
    auto made = std::make_unique<StepProducts>(t.shape, reference.batch);
    made->calibrate(30);
    return made;
  });
  const double s = t.shape.state, h1 = t.shape.hidden1;
  const double expected =
      2.0 * reference.batch * (5 * t.shape.multiply_adds() - h1 * s);  // no gradient of the first input
  if (std::abs(products.flops() / expected - 1) > 1e-9)
    return state.SkipWithError("the products are not those of the step");
  std::vector<double> steps, floors, ratios;
  for (auto _ : state) {
    t.step();
    t.space.fence("vulpes::bench::begin");
    const double began = seconds_now();
    for (int i = 0; i < group; ++i) t.step();
    t.space.fence("vulpes::bench::end");
    const double step_seconds = (seconds_now() - began) / group;
    products.run();
    std::vector<double> runs;
    for (int i = 0; i < group; ++i) runs.push_back(products.run());
    steps.push_back(step_seconds);
    floors.push_back(median(runs));
    ratios.push_back(step_seconds / floors.back());
    state.SetIterationTime(step_seconds);
  }
  state.counters["step_ms"] = 1e3 * median(steps);
  state.counters["step_best_ms"] = 1e3 * *std::min_element(steps.begin(), steps.end());
  state.counters["products_ms"] = 1e3 * median(floors);
  state.counters["ratio"] = median(ratios);
  state.counters["products_gflops"] = 1e-9 * products.flops() / median(floors);
}

void print_launches(const Reference& reference) {
  constexpr int rounds = 200;
  const Training<Space>& t = training<Space>(reference);
  StepProducts products(t.shape, reference.batch);
  products.calibrate(50);
  std::map<std::string, std::vector<double>> floor_of;  // seconds of each launch of that label, in order
  for (const ProductLaunch& l : products.launches()) floor_of["vulpes::" + l.label].push_back(l.best_seconds);
  for (int i = 0; i < group; ++i) t.step();
  std::vector<std::vector<double>> times;
  std::vector<std::string> labels;
  std::vector<double> whole;
  {
    LaunchTimes listener;
    for (int i = 0; i < rounds; ++i) {
      const double began = seconds_now();
      t.step();
      t.space.fence("vulpes::bench::launches");
      whole.push_back(seconds_now() - began);
      const auto launches = listener.take();
      times.resize(launches.size());
      labels.clear();
      for (std::size_t k = 0; k < launches.size(); ++k) {
        labels.push_back(launches[k].label);
        times[k].push_back(launches[k].seconds);
      }
    }
  }
  const auto declared = kernels::training_step_launches(t.sizes, reference.batch);
  const double step_seconds = median(whole);
  std::printf("\n%s, batch %d, state %d: %.3f ms a step (median of %d)\n", reference.name, reference.batch,
              t.shape.state, 1e3 * step_seconds, rounds);
  std::printf("%-36s %6s %9s %7s %9s %9s %10s  %s\n", "launch", "rows", "us", "share", "GFLOP/s", "GB/s", "products",
              "best way");
  std::map<std::string, std::size_t> seen;
  double launched = 0, excess = 0;
  for (std::size_t k = 0; k < labels.size(); ++k) {
    const double seconds = median(times[k]);
    launched += seconds;
    const int rows = k < declared.size() && labels[k] == declared[k].label ? declared[k].rows : reference.batch;
    const kernels::Work work = kernels::work_of(labels[k], t.sizes, rows).value_or(kernels::Work{});
    std::printf("%-36s %6d %9.1f %6.1f%% %9.1f %9.1f", labels[k].c_str(), rows, 1e6 * seconds,
                100 * seconds / step_seconds, 1e-9 * work.flops / seconds, 1e-9 * work.bytes / seconds);
    const auto found = floor_of.find(labels[k]);
    if (found != floor_of.end() && seen[labels[k]] < found->second.size()) {
      const std::size_t index = seen[labels[k]]++;
      const double floor = found->second[index];
      excess += seconds - floor;
      std::size_t nth = 0;
      for (const ProductLaunch& l : products.launches()) {
        if ("vulpes::" + l.label == labels[k] && nth++ == index)
          std::printf(" %10.1f  %s", 1e6 * floor, name_of(l.best));
      }
    }
    std::printf("\n");
  }
  std::printf("%-36s %6s %9.1f %6.1f%%\n", "between launches", "", 1e6 * (step_seconds - launched),
              100 * (step_seconds - launched) / step_seconds);
  double floor = 0;
  for (const ProductLaunch& l : products.launches()) floor += l.best_seconds;
  std::printf("products alone %.3f ms, step / products %.3f; in launches of products beyond that: %.1f us\n",
              1e3 * floor, step_seconds / floor, 1e6 * excess);
}

void add_benchmarks() {
  for (const Reference& r : references) {
    const std::string name = r.name;
    benchmark::RegisterBenchmark(("step/" + name).c_str(), step, r)->Unit(benchmark::kMillisecond)->UseRealTime();
    benchmark::RegisterBenchmark(("phases/" + name).c_str(), phases, r)->Unit(benchmark::kMillisecond)->UseRealTime();
    if constexpr (is_host_space<Space>) {
      benchmark::RegisterBenchmark(("over_products/" + name).c_str(), over_products, r)
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(10);
    }
  }
}

}  // namespace
}  // namespace vulpes::bench

int main(int argc, char** argv) {
  using namespace vulpes::bench;
  if (argc > 1 && std::strcmp(argv[1], "--launches") == 0) {
    const vulpes::Runtime runtime(argv);
    for (const Reference& r : references) {
      if (argc < 3 || std::strcmp(argv[2], r.name) == 0) print_launches(r);
    }
    return 0;
  }
  return run(argc, argv, add_benchmarks);
}
