#include "vulpes/audit/audit.hpp"

#include <algorithm>
#include <set>

#include "vulpes/audit/gate.hpp"
#include "vulpes/audit/observer.hpp"
#include "vulpes/audit/source_hash.hpp"
#include "vulpes/core/gemm.hpp"
#include "vulpes/trainer/devices.hpp"
#include "vulpes/trainer/fold_trainer.hpp"

namespace vulpes::audit {
namespace {

constexpr std::int64_t observed_folds = 2;

/// How a fold ended: equal parameters and counters mean equal training.
struct End {
  std::string parameters;
  std::uint64_t iteration = 0, adam_t = 0;
  bool operator==(const End&) const = default;
};

/// Trains a fold; `stop` is asked before each collection, as in training.
template <class Space>
End train_fold(
    trainer::FoldTrainer<Space>& fold, const std::function<bool()>& stop = [] { return false; }) {
  fold.prefill();
  while (!fold.finished()) {
    throw_if<RunError>(!fold.run_epoch(stop), "the guard stopped the training that was to be audited");
  }
  const kernels::StepCounters c = fold.counters();
  return {agent::parameter_hash(fold.policy().parameters), c.iteration, c.adam_t};
}

/// Trains a fold with the device's queue held up for `wanted` steps of its second epoch.
template <class Space>
End train_behind_gate(trainer::FoldTrainer<Space>& fold, const io::Config& c, GateFacts& facts) {
  if constexpr (is_host_space<Space>) {
    facts.unseen = "a host's launches return when they are done";
    return train_fold(fold);
  } else {
    // An epoch's boundary waits for the one before, which must not be behind the gate.
    if (c.train.epoch_steps < facts.wanted + c.train.updates || c.train.steps < 2 * c.train.epoch_steps) {
      facts.unseen = "an epoch is shorter than " + std::to_string(facts.wanted + c.train.updates) + " steps";
      return train_fold(fold);
    }
    Gate<Space> gate(instance_of<Space>(Queue::main));
    std::int64_t first = 0;
    const auto release = [&] {
      facts.queued = fold.progress().steps - first;
      facts.released_by_time = !gate.open();
    };
    const End end = train_fold(fold, [&] {
      if (fold.progress().epoch == 1 && facts.queued == 0 && !gate.closed()) {
        first = fold.progress().steps;
        gate.close();
      } else if (gate.closed() && fold.progress().steps - first >= facts.wanted) {
        release();
      }
      return false;
    });
    if (gate.closed()) release();
    return end;
  }
}

/// Bytes allocated and not given back by the calls up to `end`, as Kokkos labels them.
double bytes_held(const Trace& t, std::size_t end) {
  double bytes = 0;
  for (std::size_t i = 0; i < end; ++i) {
    const Call& c = t.calls[i];
    if (c.block == 0) continue;
    if (c.kind == CallKind::allocation) bytes += c.bytes;
    if (c.kind == CallKind::deallocation) bytes -= c.bytes;
  }
  return bytes;
}

/// What lies between calls [begin, end): steps out of the ordinary, graphs made in them.
void add_fold(FoldFacts& folds, const Trace& t, std::size_t begin, std::size_t end) {
  std::set<std::int64_t> setups;
  std::int64_t recordings = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const Call& c = t.calls[i];
    if (c.at.window != Window::step_setup) continue;
    setups.insert(c.at.number);
    recordings += c.kind == CallKind::recording;
  }
  folds.setups.push_back(static_cast<std::int64_t>(setups.size()));
  folds.recordings.push_back(recordings);
  folds.bytes.push_back(bytes_held(t, end));
}

template <class Space>
Report run_on(const io::Config& c) {
  Report report;
  report.config = c;
  report.space = Space::name();
  report.products = gemm_description<Space>();
  const trainer::Dataset data = trainer::load_dataset(c);
  const auto folds = std::min<std::size_t>(observed_folds, data.folds.size());

  Facts facts;
  std::vector<std::size_t> ends;  // calls seen at the ends of folds
  End last;
  Observer<Space> observer;
  for (std::size_t k = 0; k < folds; ++k) {
    {
      trainer::FoldTrainer<Space> fold(c, data, data.folds[k]);
      last = train_fold(fold);
      facts = make_facts(c, fold.context());
    }
    ends.push_back(observer.calls());
  }
  const Trace trace = observer.finish();

  FoldFacts seen;
  GateFacts gate;
  for (std::size_t k = 0; k < folds; ++k) add_fold(seen, trace, k == 0 ? 0 : ends[k - 1], ends[k]);
  trainer::FoldTrainer<Space> alone(c, data, data.folds[folds - 1]);
  seen.same_alone = train_behind_gate(alone, c, gate) == last;

  const auto add = [&](std::vector<Row> rows) { report.rows.insert(report.rows.end(), rows.begin(), rows.end()); };
  add(step_rows(trace, facts, static_cast<std::int64_t>(folds)));
  add({gate_row(gate)});
  add(epoch_rows(trace));
  add(fold_rows(trace, seen));
  report.times = step_times(trace.kernels);
  std::set<std::string> listed;
  for (const Recording& r : trace.recordings) {
    if (r.at.window != Window::step_setup) continue;
    report.nodes = std::max(report.nodes, static_cast<std::int64_t>(r.nodes.size()));
    for (const Node& n : r.nodes) {
      if (n.kind != Node::kernel || n.origin.ours()) continue;
      if (listed.insert(n.origin.region + n.name).second) report.library.push_back({n.origin.region, n.name, n.teams});
    }
  }
  return report;
}

}  // namespace

template <class Space>
Facts make_facts(const io::Config& c, const trainer::StepContext<Space>& context) {
  Facts f;
  kernels::WorkSizes& z = f.sizes;
  z.shape = context.learner.network.shape;
  z.feature_columns = context.table.feature_columns;
  z.n_step = static_cast<int>(c.agent.n_step);
  z.tree_levels = context.replay.ring.tree.view.levels;
  z.replay_rows = context.replay.ring.capacity();
  z.per_branch = context.rules.per_branch;
  z.spectral_trunk = c.optimiser.spectral_trunk > 0;
  z.spectral_output = c.optimiser.spectral_output > 0;
  z.goals = c.reward.goal_bonus > 0 || c.hindsight.share > 0;
  z.hindsight_share = c.hindsight.share;
  z.cql = c.cql.weight > 0;
  z.auxiliary = c.auxiliary.weight > 0;
  z.diversity = c.diversity.weight > 0;
  f.batch = static_cast<int>(c.train.batch);
  if (c.causal.every > 0) {
    f.causal_rows = (context.buffers.causal.groups + 1) * static_cast<int>(std::min(c.causal.rows, c.train.batch));
  }
  f.variants = (c.pruning.sparsity > 0 ? 2 : 1) * (c.causal.every > 0 ? 2 : 1);
  f.graph_mode = c.graph.mode;
  f.forward = c.gemm.forward;
  f.backward = c.gemm.backward;
  return f;
}

#define INSTANTIATE(S) template Facts make_facts<S>(const io::Config&, const trainer::StepContext<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

bool Report::broken() const {
  return std::any_of(rows.begin(), rows.end(), [](const Row& r) { return r.verdict == Verdict::broken; });
}

io::Config audited(io::Config c, const Options& options) {
  c.train.steps = options.steps;
  c.train.epoch_steps = std::max<std::int64_t>(1, std::min(c.train.epoch_steps, options.steps / 2));
  c.train.patience = 0;
  c.folds.only = 0;
  if (c.folds.kind == "single") c.folds.kind = "rolling";
  c.folds.count = std::max(c.folds.count, observed_folds);
  return c;
}

Report run(const io::Config& config, const Options& options) {
  const io::Config c = audited(config, options);
  return trainer::on_device(c.run.device, [&](const auto& space) { return run_on<std::decay_t<decltype(space)>>(c); });
}

const char* source_hash() { return VULPES_SOURCE_HASH; }

}  // namespace vulpes::audit
