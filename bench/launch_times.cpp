#include "launch_times.hpp"

#include <cstring>
#include <utility>

#include "harness.hpp"

namespace vulpes::bench {
namespace {

std::vector<TimedLaunch> launches;
int depth = 0;  // of regions inside the outermost one of ours
bool inside = false;
double began = 0;

void begin(const char* label) {
  launches.push_back({label, 0.0});
  began = seconds_now();
}
void end() { launches.back().seconds = seconds_now() - began; }

void begin_kernel(const char* label, std::uint32_t, std::uint64_t*) {
  if (!inside) begin(label);
}
void end_kernel(std::uint64_t) {
  if (!inside) end();
}
void push(const char* label) {
  if (inside) {
    ++depth;
  } else if (std::strncmp(label, "vulpes::", 8) == 0) {
    inside = true;
    depth = 0;
    begin(label);
  }
}
void pop() {
  if (!inside) return;
  if (depth-- > 0) return;
  inside = false;
  end();
}

}  // namespace

namespace tools = Kokkos::Tools::Experimental;

LaunchTimes::LaunchTimes() {
  launches.clear();
  launches.reserve(1 << 16);
  tools::set_begin_parallel_for_callback(begin_kernel);
  tools::set_end_parallel_for_callback(end_kernel);
  tools::set_begin_parallel_reduce_callback(begin_kernel);
  tools::set_end_parallel_reduce_callback(end_kernel);
  tools::set_push_region_callback(push);
  tools::set_pop_region_callback(pop);
}

LaunchTimes::~LaunchTimes() {
  tools::set_begin_parallel_for_callback(nullptr);
  tools::set_end_parallel_for_callback(nullptr);
  tools::set_begin_parallel_reduce_callback(nullptr);
  tools::set_end_parallel_reduce_callback(nullptr);
  tools::set_push_region_callback(nullptr);
  tools::set_pop_region_callback(nullptr);
}

std::vector<TimedLaunch> LaunchTimes::take() { return std::exchange(launches, {}); }

}  // namespace vulpes::bench
