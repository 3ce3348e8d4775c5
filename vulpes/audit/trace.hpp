// What an observer saw of a training: plain data, from which rows.hpp and times.hpp draw their conclusions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vulpes/core/scope.hpp"

namespace vulpes::audit {

/// Where a launch comes from.
struct Origin {
  std::string label;         ///< of the launch, or of the copy's destination; a library's launch has none
  std::string region;        ///< innermost named stretch around it
  const char* part = "";     ///< of the step (core/scope.hpp)
  bool known = false;        ///< false: nobody saw the launch being made
  std::int64_t ordinal = 0;  ///< the same for all launches that one call of a product makes
  /// What work.hpp may know it by.
  const std::string& name() const { return label.empty() ? region : label; }
  /// A launch of this project; else a library's.
  bool ours() const { return !label.empty(); }
};

/// What the host asked for.
enum class CallKind {
  synchronisation,  ///< of a stream or the device, fences included
  event_wait,
  poll,  ///< of a stream or event
  copy,
  memset,
  launch,
  graph_launch,
  recording,  ///< a graph made executable
  allocation,
  deallocation
};

struct Call {
  CallKind kind;
  std::string name;  ///< of the interface's function, or the label that Kokkos has for it
  Position at;
  Origin origin;
  double bytes = 0;
  std::uint64_t block = 0;  ///< of an allocation: what its deallocation names too
};

/// One execution of a kernel.
struct KernelRun {
  Origin origin;
  std::string name;  ///< the function's, where the device says it
  Position at;       ///< of the call that launched it
  std::int64_t teams = 0;
  double begin = 0, end = 0;  ///< seconds
};

/// A recorded graph.
struct Node {
  enum Kind { kernel, copy, memset, other } kind = kernel;
  Origin origin;
  std::string name;
  std::int64_t teams = 0;
  std::vector<int> after;  ///< indices of the nodes that it waits for
};
struct Recording {
  Position at;
  std::vector<Node> nodes;
};

struct Trace {
  bool device = false;  ///< calls of a device's interface, its kernels and graphs were seen; else those of Kokkos alone
  std::vector<Call> calls;
  std::vector<KernelRun> kernels;
  std::vector<Recording> recordings;
};

}  // namespace vulpes::audit
