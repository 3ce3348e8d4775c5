// CUPTI's callbacks (calls, graphs) and activity records (kernels).
//
// A kernel in a graph is found again by the id of its node: ids of nodes are noted when a captured launch makes them
// and when the graph is copied to become executable; activity records carry the copy's.
#include "vulpes/audit/observer_cuda.hpp"

#include <cuda.h>
#include <cuda_runtime.h>
#include <cupti.h>
#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <unordered_map>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/instances_cuda.hpp"

namespace vulpes::audit {
namespace {

void check(CUptiResult code, const char* doing) {
  if (code == CUPTI_SUCCESS) return;
  const char* text = "unknown error";
  cuptiGetResultString(code, &text);
  throw RunError(std::string("CUPTI: ") + doing + ": " + text +
                 (code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "; leave other profilers away" : ""));
}
void check_driver(CUresult code, const char* doing) {
  if (code == CUDA_SUCCESS) return;
  const char* text = "unknown error";
  cuGetErrorString(code, &text);
  throw RunError(std::string("CUDA: ") + doing + ": " + text);
}

std::string demangled(const char* name) {
  if (!name) return {};
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

constexpr std::size_t buffer_bytes = std::size_t{8} << 20;

/// What is known of one activity record of a kernel until its origin is looked up.
struct RawKernel {
  std::uint64_t node;
  std::uint32_t correlation;
  const char* name;  ///< CUPTI's, valid as long as it runs
  std::int64_t teams;
  std::uint64_t begin, end;  ///< ns
};

}  // namespace

std::optional<CallKind> cuda_call_kind(std::string_view f) {
  struct Entry {
    std::string_view prefix;
    CallKind kind;
  };
  // The first that fits counts.
  static constexpr Entry entries[] = {{"cudaDeviceSynchronize", CallKind::synchronisation},
                                      {"cudaStreamSynchronize", CallKind::synchronisation},
                                      {"cudaThreadSynchronize", CallKind::synchronisation},
                                      {"cuCtxSynchronize", CallKind::synchronisation},
                                      {"cuStreamSynchronize", CallKind::synchronisation},
                                      {"cudaEventSynchronize", CallKind::event_wait},
                                      {"cuEventSynchronize", CallKind::event_wait},
                                      {"cudaEventQuery", CallKind::poll},
                                      {"cudaStreamQuery", CallKind::poll},
                                      {"cuEventQuery", CallKind::poll},
                                      {"cuStreamQuery", CallKind::poll},
                                      {"cudaMemcpy", CallKind::copy},
                                      {"cuMemcpy", CallKind::copy},
                                      {"cudaMemset", CallKind::memset},
                                      {"cuMemset", CallKind::memset},
                                      {"cudaGraphLaunch", CallKind::graph_launch},
                                      {"cuGraphLaunch", CallKind::graph_launch},
                                      {"cudaGraphInstantiate", CallKind::recording},
                                      {"cuGraphInstantiate", CallKind::recording},
                                      {"cudaLaunch", CallKind::launch},
                                      {"cuLaunch", CallKind::launch},
                                      {"cudaMalloc", CallKind::allocation},
                                      {"cudaHostAlloc", CallKind::allocation},
                                      {"cuMemAlloc", CallKind::allocation},
                                      {"cuMemHostAlloc", CallKind::allocation},
                                      {"cuMemCreate", CallKind::allocation},
                                      {"cudaFree", CallKind::deallocation},
                                      {"cuMemFree", CallKind::deallocation}};
  for (const Entry& e : entries) {
    if (f.substr(0, e.prefix.size()) == e.prefix) return e.kind;
  }
  return std::nullopt;
}

struct DeviceObserver<Kokkos::Cuda>::State {
  explicit State(Recorder& r) : recorder(r) {}
  Recorder& recorder;
  CUpti_SubscriberHandle subscriber = nullptr;
  std::mutex mutex;  ///< of what follows
  std::unordered_map<std::uint64_t, Origin> nodes;
  struct Launched {
    Position at;
    Origin origin;
  };
  std::unordered_map<std::uint32_t, Launched> launches;  ///< by correlation
  std::vector<RawKernel> kernels;
  bool running = true;

  void call(const CUpti_CallbackData& data);
  void resource(CUpti_CallbackId id, const CUpti_GraphData& data);
  void record(CUgraph graph);
  void complete(std::uint8_t* buffer, std::size_t bytes);
  void resolve();
};

namespace {

using State = DeviceObserver<Kokkos::Cuda>::State;
State* state = nullptr;  // CUPTI's buffer callbacks carry no user data

/// Calls of the interface that a thread is inside of: the runtime calls the driver, and what we ask for ourselves
/// inside a callback is not the program's.
thread_local int depth = 0;
/// Inside the instantiation of a graph, whose nodes are copies.
thread_local bool instantiating = false;
/// Between begin and end of a capture; what was captured, in order.
thread_local bool capturing = false;
thread_local std::vector<Origin> captured;

/// In the middle of a C library: nothing may be thrown through it.
template <class F>
void guarded(const F& f) noexcept {
  try {
    f();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "vulpes: audit: %s\n", e.what());
    std::abort();
  }
}

void CUPTIAPI on_callback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  auto& s = *static_cast<State*>(user);
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API || domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (call.callbackSite == CUPTI_API_ENTER) {
      if (depth++ == 0) guarded([&] { s.call(call); });
    } else if (--depth == 0) {
      instantiating = false;
    }
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE &&
             (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED || id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)) {
    const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
    guarded([&] { s.resource(id, *static_cast<const CUpti_GraphData*>(resource.resourceDescriptor)); });
  }
}

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *most = 0;
}

void CUPTIAPI buffer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  if (state && valid > 0) guarded([&] { state->complete(buffer, valid); });
  std::free(buffer);
}

/// A kernel node's function and grid.
void describe_kernel(CUgraphNode node, Node& n) {
  CUDA_KERNEL_NODE_PARAMS p{};
  check_driver(cuGraphKernelNodeGetParams(node, &p), "reading a graph's kernel");
  const char* name = nullptr;
  if (p.func) {
    check_driver(cuFuncGetName(&name, p.func), "reading a kernel's name");
  } else if (p.kern) {
    check_driver(cuKernelGetName(&name, p.kern), "reading a kernel's name");
  }
  n.name = demangled(name);
  n.teams = static_cast<std::int64_t>(p.gridDimX) * p.gridDimY * p.gridDimZ;
}

}  // namespace

void State::call(const CUpti_CallbackData& data) {
  const std::string_view name = data.functionName;
  if (name.substr(0, 22) == "cudaStreamBeginCapture") {
    capturing = true;
    captured.clear();
  } else if (name.substr(0, 20) == "cudaStreamEndCapture") {
    capturing = false;
  }
  const auto kind = cuda_call_kind(name);
  if (!kind) return;
  Call c{*kind, std::string(name), position, origin_here()};
  if (*kind == CallKind::recording) {
    // The first two arguments of every variant are the same.
    record(static_cast<const cudaGraphInstantiate_v12000_params*>(data.functionParams)->graph);
    instantiating = true;
  }
  const bool makes_node = *kind == CallKind::launch || *kind == CallKind::copy || *kind == CallKind::memset;
  if (capturing && makes_node) captured.push_back(c.origin);
  if (*kind == CallKind::launch || *kind == CallKind::graph_launch) {
    const std::lock_guard lock(mutex);
    launches[data.correlationId] = {position, c.origin};
  }
  recorder.add(std::move(c));
}

void State::resource(CUpti_CallbackId id, const CUpti_GraphData& data) {
  std::uint64_t node = 0;
  if (cuptiGetGraphNodeId(data.node, &node) != CUPTI_SUCCESS) return;
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    if (instantiating) return;
    const std::lock_guard lock(mutex);
    nodes[node] = origin_here();
    return;
  }
  std::uint64_t original = 0;
  if (cuptiGetGraphNodeId(data.originalNode, &original) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(mutex);
  const auto found = nodes.find(original);
  if (found != nodes.end()) nodes[node] = Origin(found->second);
}

void State::record(CUgraph graph) {
  std::size_t count = 0, edges = 0;
  check_driver(cuGraphGetNodes(graph, nullptr, &count), "reading a graph's nodes");
  std::vector<CUgraphNode> handles(count);
  check_driver(cuGraphGetNodes(graph, handles.data(), &count), "reading a graph's nodes");
  check_driver(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), "reading a graph's edges");
  std::vector<CUgraphNode> from(edges), to(edges);
  std::vector<CUgraphEdgeData> data(edges);
  check_driver(cuGraphGetEdges(graph, from.data(), to.data(), data.data(), &edges), "reading a graph's edges");

  Recording r;
  r.at = position;
  std::map<CUgraphNode, int> index;
  std::vector<int> made;  // kernels, copies and memsets, in the order of the graph
  std::vector<std::uint64_t> ids(count);
  bool all_known = true;
  for (std::size_t i = 0; i < count; ++i) {
    index[handles[i]] = static_cast<int>(i);
    Node& n = r.nodes.emplace_back();
    CUgraphNodeType type;
    check_driver(cuGraphNodeGetType(handles[i], &type), "reading a node's type");
    n.kind = type == CU_GRAPH_NODE_TYPE_KERNEL   ? Node::kernel
             : type == CU_GRAPH_NODE_TYPE_MEMCPY ? Node::copy
             : type == CU_GRAPH_NODE_TYPE_MEMSET ? Node::memset
                                                 : Node::other;
    if (n.kind == Node::kernel) describe_kernel(handles[i], n);
    check(cuptiGetGraphNodeId(handles[i], &ids[i]), "reading a node's id");
    const std::lock_guard lock(mutex);
    const auto found = nodes.find(ids[i]);
    if (found != nodes.end()) n.origin = found->second;
    if (n.kind == Node::other) continue;
    made.push_back(static_cast<int>(i));
    all_known = all_known && n.origin.known;
  }
  // Nodes come in the order in which they were made: each of them by one captured call.
  if (!all_known && made.size() == captured.size()) {
    const std::lock_guard lock(mutex);
    for (std::size_t k = 0; k < made.size(); ++k) {
      const auto i = static_cast<std::size_t>(made[k]);
      nodes[ids[i]] = r.nodes[i].origin = captured[k];
    }
  }
  captured.clear();
  for (std::size_t e = 0; e < edges; ++e) {
    r.nodes[static_cast<std::size_t>(index.at(to[e]))].after.push_back(index.at(from[e]));
  }
  const std::lock_guard lock(recorder.mutex);
  recorder.trace.recordings.push_back(std::move(r));
}

void State::complete(std::uint8_t* buffer, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, bytes, &activity) == CUPTI_SUCCESS) {
    if (activity->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& k = *reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
    // Collections and validations run millions of kernels that no row is about.
    const auto found = launches.find(k.correlationId);
    const Window window = found == launches.end() ? Window::step : found->second.at.window;
    if (window != Window::step && window != Window::step_setup && window != Window::epoch) continue;
    kernels.push_back({k.graphNodeId, k.correlationId, k.name, static_cast<std::int64_t>(k.gridX) * k.gridY * k.gridZ,
                       k.start, k.end});
  }
}

void State::resolve() {
  std::unordered_map<const char*, std::string> names;
  for (const RawKernel& k : kernels) {
    KernelRun run;
    const auto launched = launches.find(k.correlation);
    if (launched != launches.end()) run.at = launched->second.at;
    const auto node = nodes.find(k.node);
    if (k.node != 0 && node != nodes.end()) {
      run.origin = node->second;
    } else if (k.node == 0 && launched != launches.end()) {
      run.origin = launched->second.origin;
    }
    std::string& name = names[k.name];
    if (name.empty()) name = demangled(k.name);
    run.name = name;
    run.teams = k.teams;
    run.begin = 1e-9 * static_cast<double>(k.begin);
    run.end = 1e-9 * static_cast<double>(k.end);
    recorder.trace.kernels.push_back(std::move(run));
  }
}

DeviceObserver<Kokkos::Cuda>::DeviceObserver(Recorder& recorder) : state_(std::make_unique<State>(recorder)) {
  throw_if<RunError>(state != nullptr, "only one audit at a time");
  check(cuptiSubscribe(&state_->subscriber, on_callback, state_.get()), "subscribing");
  state = state_.get();
  check(cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed), "registering buffers");
  check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "observing kernels");
  for (const auto domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RESOURCE}) {
    check(cuptiEnableDomain(1, state_->subscriber, domain), "observing calls");
  }
}

void DeviceObserver<Kokkos::Cuda>::stop() {
  if (!state_->running) return;
  state_->running = false;
  for (const auto domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RESOURCE}) {
    check(cuptiEnableDomain(0, state_->subscriber, domain), "ending");
  }
  check(cuptiActivityFlushAll(0), "flushing activity records");
  std::size_t dropped = 0;
  check(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), "counting lost records");
  check(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "ending");
  throw_if<RunError>(dropped > 0, "CUPTI lost " + std::to_string(dropped) + " activity records");
  {
    const std::lock_guard lock(state_->mutex);
    state_->resolve();  // before CUPTI ends, whose names they are
  }
  check(cuptiUnsubscribe(state_->subscriber), "unsubscribing");
  state = nullptr;
}

DeviceObserver<Kokkos::Cuda>::~DeviceObserver() {
  if (!state_->running) return;
  cuptiUnsubscribe(state_->subscriber);
  cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityFlushAll(0);
  state = nullptr;
}

}  // namespace vulpes::audit
