#include "vulpes/core/graph.hpp"

namespace vulpes {
namespace {

constexpr const char* phase_names[] = {"none", "begin", "body", "end", "instantiate", "upload", "launch"};

}  // namespace

GraphPhase graph_phase(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(GraphPhase::launch); ++i) {
    if (name == phase_names[i]) return static_cast<GraphPhase>(i);
  }
  throw InputError("'" + name + "' is no phase of a graph: none, begin, body, end, instantiate, upload, launch");
}

template <class Space>
struct Graph<Space>::Implementation {
  std::function<void()> body;
  bool launch_fails;
};

template <class Space>
Graph<Space>::Graph(const Space&, std::function<void()> body, GraphPhase fail_at) {
  const bool launch_fails = fail_at == GraphPhase::launch;
  if (fail_at != GraphPhase::none && !launch_fails) {
    throw GraphError(std::string("injected failure of phase ") + phase_names[static_cast<int>(fail_at)]);
  }
  implementation_ = std::make_shared<Implementation>(Implementation{std::move(body), launch_fails});
}

template <class Space>
void Graph<Space>::launch(const Space&) const {
  if (implementation_->launch_fails) throw GraphError("injected failure of phase launch");
  implementation_->body();
}

#define INSTANTIATE(S) template class Graph<S>;
VULPES_FOR_EACH_HOST_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes
