// A training step: whole, by phase, and against its matrix products alone.
//   bench_step --launches [CONFIG]   prints the time of every launch instead
//   bench_step --serve CONFIG        runs steps as standard input asks (bench/peers/interleave.py)
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>

#include "harness.hpp"
#include "launch_times.hpp"
#include "step_products.hpp"
#include "training.hpp"
#include "vulpes/core/runtime.hpp"

namespace vulpes::bench {
namespace {

using Space = DefaultSpace;
constexpr Reference references[] = {
    demo, demo_spectral, demo_everything, small_reference, small_everything, large_everything};
/// Not for two host cores: seconds a step.
bool runs_here(const Reference& r) { return !is_host_space<Space> || r.batch < 8192; }

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
  for (int i = 0; i < group; ++i) t.eager_step();
  std::map<std::string, std::vector<double>> by_phase;
  std::vector<double> all;
  LaunchTimes times;
  while (state.KeepRunningBatch(group)) {
    const double began = seconds_now();
    for (int i = 0; i < group; ++i) t.eager_step();
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

/// The launch of a step on a host that contains a product of the floor.
std::string launch_of(const std::string& product) {
  if (product.rfind("forward::", 0) == 0) return "vulpes::forward::passes";
  const bool weights = product.size() > 8 && product.compare(product.size() - 8, 8, "_weights") == 0;
  return weights ? "vulpes::backward::weights" : "vulpes::backward::inputs";
}

void print_launches(const Reference& reference) {
  constexpr int rounds = 200;
  const Training<Space>& t = training<Space>(reference);
  std::optional<StepProducts> products;
  if (is_host_space<Space>) products.emplace(t.shape, reference.batch).calibrate(50);
  for (int i = 0; i < group; ++i) t.eager_step();
  std::vector<std::vector<double>> times;
  std::vector<std::string> labels;
  std::vector<double> whole;
  {
    LaunchTimes listener;
    for (int i = 0; i < rounds; ++i) {
      const double began = seconds_now();
      t.eager_step();
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
  std::map<std::string, double> floor_of;  // seconds of a launch's products
  double floor = 0;
  for (const ProductLaunch& l : products ? products->launches() : std::vector<ProductLaunch>()) {
    floor_of[launch_of(l.label)] += l.best_seconds;
    floor += l.best_seconds;
  }
  const double step_seconds = median(whole);
  std::printf("\n%s, batch %d, state %d: %.3f ms a step (median of %d)\n", reference.name, reference.batch,
              t.shape.state, 1e3 * step_seconds, rounds);
  std::printf("%-36s %9s %7s %9s %9s %12s\n", "launch", "us", "share", "GFLOP/s", "GB/s", "products, us");
  double launched = 0, excess = 0;
  for (std::size_t k = 0; k < labels.size(); ++k) {
    const double seconds = median(times[k]);
    launched += seconds;
    const kernels::Work work = kernels::work_of(labels[k], t.sizes, reference.batch).value_or(kernels::Work{});
    std::printf("%-36s %9.1f %6.1f%% %9.1f %9.1f", labels[k].c_str(), 1e6 * seconds, 100 * seconds / step_seconds,
                1e-9 * work.flops / seconds, 1e-9 * work.bytes / seconds);
    const auto found = floor_of.find(labels[k]);
    if (found != floor_of.end()) {
      excess += seconds - found->second;
      std::printf(" %12.1f", 1e6 * found->second);
    }
    std::printf("\n");
  }
  std::printf("%-36s %9.1f %6.1f%%\n", "between launches", 1e6 * (step_seconds - launched),
              100 * (step_seconds - launched) / step_seconds);
  if (!products) return;
  std::printf(
      "products at OpenBLAS' best rates %.3f ms, step / products %.3f; launches of products beyond that: %.1f us\n",
      1e3 * floor, step_seconds / floor, 1e6 * excess);
  std::printf("%-36s %9s %9s  %s\n", "product", "us", "GFLOP/s", "best way");
  for (const ProductLaunch& l : products->launches()) {
    std::printf("%-36s %9.1f %9.1f  %s\n", l.label.c_str(), 1e6 * l.best_seconds, 1e-9 * l.flops() / l.best_seconds,
                name_of(l.best));
  }
}

const Reference* reference_called(const char* name) {
  for (const Reference& r : references) {
    if (std::strcmp(r.name, name) == 0) return &r;
  }
  return nullptr;
}

/// Steps on request, so that another program can be timed in turns with this one on the same device: builds and warms
/// the training of `name`, says so on one line, then reads `run N` and answers each with one line of JSON after the
/// last step is done, until `quit` or the end of the input. Nothing else on standard output begins with a brace.
int serve(const char* name) {
  const Reference* reference = reference_called(name);
  if (!reference) {
    std::fprintf(stderr, "bench_step: no configuration '%s'; there are", name);
    for (const Reference& r : references) std::fprintf(stderr, " %s", r.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  const Training<Space>& t = training<Space>(*reference);
  for (int i = 0; i < group; ++i) t.step();  // on a device the third one is recorded
  t.space.fence("vulpes::bench::serve_warm");
  std::cout << "ready " << name << ", batch " << reference->batch << ", " << Space::name() << std::endl;
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") {
    int steps = 0, read = 0;
    if (std::sscanf(line.c_str(), "run %d%n", &steps, &read) != 1 || steps <= 0 || line[read] != '\0') {
      std::fprintf(stderr, "bench_step: 'run N' or 'quit' expected, not '%s'\n", line.c_str());
      return 2;
    }
    const double began = seconds_now();
    for (int i = 0; i < steps; ++i) t.step();
    t.space.fence("vulpes::bench::serve");
    std::printf("{\"milliseconds\": %.9g, \"steps\": %d}\n", 1e3 * (seconds_now() - began) / steps, steps);
    std::fflush(stdout);
  }
  return 0;
}

void add_benchmarks() {
  for (const Reference& r : references) {
    if (!runs_here(r)) continue;
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
    const vulpes::Runtime runtime(argv, 0, vulpes::ToolFences::yes);
    for (const Reference& r : references) {
      if (argc < 3 || std::strcmp(argv[2], r.name) == 0) print_launches(r);
    }
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "--serve") == 0) {
    const vulpes::Runtime runtime(argv);
    if (argc != 3) {
      std::fprintf(stderr, "usage: bench_step --serve CONFIG\n");
      return 2;
    }
    return serve(argv[2]);
  }
  return run(argc, argv, add_benchmarks);
}
