#include "vulpes/trainer/graphs.hpp"

#include <algorithm>

#include "vulpes/core/scope.hpp"
#include "vulpes/io/log.hpp"

namespace vulpes::trainer {

GraphMode graph_mode(const std::string& name) {
  return name == "eager" ? GraphMode::eager : name == "split" ? GraphMode::split : GraphMode::mega;
}

template <class Space>
StepRunner<Space>::StepRunner(const Lanes<Space>& lanes, StepContext<Space> context, GraphMode mode, GraphFaults faults)
    : lanes_(lanes), context_(std::move(context)), mode_(mode), faults_(faults) {}

template <class Space>
void StepRunner<Space>::fall_back(GraphMode mode, const char* what, const GraphError& error) {
  mode_ = mode;
  io::log()->warn("the {} could not be run as a graph ({}); training goes on {}", what, error.what(),
                  mode == GraphMode::split ? "with a graph for each phase" : "without graphs");
}

template <class Space>
void StepRunner<Space>::run_part(const Space& space, Phase phase, Variant& variant, Periodic periodic) {
  if (phase == Phase::aux && !periodic.causal) return;  // a graph without nodes
  if (phase == Phase::forward_ddqn && is_host_space<Space>) return;
  if (mode_ == GraphMode::split && variant.warm) {
    const auto index = static_cast<std::size_t>(phase);
    Graph<Space>& graph = variant.parts[index];
    try {
      if (!graph) {
        graph = Graph<Space>(
            space, [space, phase, context = context_, periodic] { run_phase(space, phase, context, periodic); },
            faults_.next());
      }
      graph.launch(space);
      return;
    } catch (const GraphError& e) {
      fall_back(GraphMode::eager, phase_names[index], e);
    }
  }
  run_phase(space, phase, context_, periodic);
}

template <class Space>
bool StepRunner<Space>::settled(const Variant& variant) const {
  if (steps_ < 2 || !variant.warm) return false;
  if (mode_ == GraphMode::mega) return static_cast<bool>(variant.whole);
  if (mode_ == GraphMode::split) {
    return std::any_of(variant.parts.begin(), variant.parts.end(), [](const Graph<Space>& g) { return bool(g); });
  }
  return true;
}

template <class Space>
void StepRunner<Space>::run_parts(Variant& variant, Periodic periodic) {
  run_part(lanes_.main, Phase::sample, variant, periodic);
  lanes_.fork();
  run_part(lanes_.side, Phase::forward_ddqn, variant, periodic);
  run_part(lanes_.main, Phase::spectral, variant, periodic);
  lanes_.join();
  for (const Phase phase : {Phase::forward, Phase::aux, Phase::adam, Phase::priorities}) {
    run_part(lanes_.main, phase, variant, periodic);
  }
}

template <class Space>
void StepRunner<Space>::run(Periodic periodic) {
  Variant& variant = variants_[(periodic.prune ? 1 : 0) + (periodic.causal ? 2 : 0)];
  const InWindow window(settled(variant) ? Window::step : Window::step_setup);
  if (steps_ >= 2 && variant.warm && mode_ != GraphMode::eager) {
    if (mode_ == GraphMode::mega) {
      try {
        if (!variant.whole) {
          variant.whole = Graph<Space>(
              lanes_.main, [lanes = lanes_, context = context_, periodic] { training_step(lanes, context, periodic); },
              faults_.next());
        }
        variant.whole.launch(lanes_.main);
        return;
      } catch (const GraphError& e) {
        fall_back(GraphMode::split, "step", e);
      }
    }
    run_parts(variant, periodic);
    return;
  }
  training_step(lanes_, context_, periodic);
  variant.warm = true;
  ++steps_;
}

#define INSTANTIATE(S) template class StepRunner<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
