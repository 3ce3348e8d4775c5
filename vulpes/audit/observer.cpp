// Kokkos Tools callbacks. They are functions without state, so the recorder they write to is a global of this file.
#include "vulpes/audit/observer.hpp"

#include <atomic>
#include <string_view>

#include "vulpes/core/timing.hpp"

namespace vulpes::audit {
namespace {

namespace tools = Kokkos::Tools::Experimental;

Recorder* recorder = nullptr;
bool on_device = false;
std::atomic<std::int64_t> ordinals{0};

/// What a thread is inside of.
struct Labels {
  struct Region {
    std::string label;
    std::int64_t ordinal;
  };
  std::vector<Region> regions;
  std::string launch;
  std::string copied;  ///< destination of the copy or fill that is being made, perhaps by a launch of Kokkos
  std::int64_t ordinal = 0;
  double began = 0;
};
thread_local Labels labels;

void begin_launch(const char* label, std::uint32_t, std::uint64_t*) {
  labels.launch = label;
  labels.ordinal = ++ordinals;
  if (on_device || !labels.copied.empty()) return;
  recorder->add({CallKind::launch, label, position, origin_here()});
  labels.began = seconds_now();
}

void end_launch(std::uint64_t) {
  if (!on_device && labels.copied.empty() && position.window != Window::none) {
    const std::lock_guard lock(recorder->mutex);
    recorder->trace.kernels.push_back({origin_here(), labels.launch, position, 0, labels.began, seconds_now()});
  }
  labels.launch.clear();
}

void push(const char* label) { labels.regions.push_back({label, ++ordinals}); }
void pop() {
  if (!labels.regions.empty()) labels.regions.pop_back();
}

void begin_fence(const char* label, std::uint32_t, std::uint64_t*) {
  recorder->add({CallKind::synchronisation, std::string("fence ") + label, position, origin_here()});
}

void begin_copy(Kokkos::Tools::SpaceHandle, const char* to, const void*, Kokkos::Tools::SpaceHandle, const char* from,
                const void*, std::uint64_t bytes) {
  labels.copied = to;
  labels.ordinal = ++ordinals;
  // A device's own interface says what it became: a copy, a memset, a kernel.
  if (on_device) return;
  const std::string_view source = from;
  const bool fill = source == "(none)" || source == "Scalar";
  recorder->add({fill ? CallKind::memset : CallKind::copy, std::string(from) + " -> " + to, position, origin_here(),
                 static_cast<double>(bytes)});
}
void end_copy() { labels.copied.clear(); }

void allocate(Kokkos::Tools::SpaceHandle, const char* label, const void* block, std::uint64_t bytes) {
  recorder->add({CallKind::allocation, label, position, origin_here(), static_cast<double>(bytes),
                 reinterpret_cast<std::uintptr_t>(block)});
}
void deallocate(Kokkos::Tools::SpaceHandle, const char* label, const void* block, std::uint64_t bytes) {
  recorder->add({CallKind::deallocation, label, position, origin_here(), static_cast<double>(bytes),
                 reinterpret_cast<std::uintptr_t>(block)});
}

}  // namespace

Origin origin_here() {
  Origin o;
  o.part = position.part;
  o.known = true;
  o.label = labels.copied.empty() ? labels.launch : labels.copied;
  o.ordinal = labels.ordinal;
  for (auto r = labels.regions.rbegin(); r != labels.regions.rend(); ++r) {
    if (r->label.rfind("vulpes::", 0) != 0) continue;  // a library's own
    o.region = r->label;
    o.ordinal = r->ordinal;
    // What a library launches with Kokkos inside a region of ours is the library's.
    if (o.label.rfind("vulpes::", 0) != 0) o.label.clear();
    break;
  }
  return o;
}

ToolsObserver::ToolsObserver(Recorder& to, bool device) : before_(tools::get_callbacks()) {
  recorder = &to;
  on_device = device;
  tools::set_begin_parallel_for_callback(begin_launch);
  tools::set_begin_parallel_reduce_callback(begin_launch);
  tools::set_begin_parallel_scan_callback(begin_launch);
  tools::set_end_parallel_for_callback(end_launch);
  tools::set_end_parallel_reduce_callback(end_launch);
  tools::set_end_parallel_scan_callback(end_launch);
  tools::set_push_region_callback(push);
  tools::set_pop_region_callback(pop);
  tools::set_begin_fence_callback(begin_fence);
  tools::set_begin_deep_copy_callback(begin_copy);
  tools::set_end_deep_copy_callback(end_copy);
  tools::set_allocate_data_callback(allocate);
  tools::set_deallocate_data_callback(deallocate);
}

ToolsObserver::~ToolsObserver() {
  tools::set_callbacks(before_);
  recorder = nullptr;
}

}  // namespace vulpes::audit
