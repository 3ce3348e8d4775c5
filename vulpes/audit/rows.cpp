#include "vulpes/audit/rows.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "vulpes/core/timing.hpp"

namespace vulpes::audit {
namespace {

/// Memory that is set because launches add to it.
constexpr const char* accumulators[] = {"vulpes::pruning::histograms"};
/// From here on a launch is worth more than one team, and moving its bytes more than nothing (elements, bytes).
constexpr double one_team_elements = 4096, move_bytes = 4096;
/// A library's launch with one team should be split from here on, seconds.
constexpr double library_seconds = 5e-6;

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }
bool is_accumulator(const Origin& o) {
  return std::any_of(std::begin(accumulators), std::end(accumulators), [&](const char* a) { return o.label == a; });
}

/// Counts of what was found, by name, for a row's last column.
class Found {
 public:
  void add(const std::string& name) {
    ++names_[name];
    ++count_;
  }
  std::int64_t count() const { return count_; }
  std::string detail() const {
    std::string text;
    int shown = 0;
    for (const auto& [name, n] : names_) {
      if (shown++ == 4) return text + ", and " + std::to_string(names_.size() - 4) + " more";
      text += (text.empty() ? "" : ", ") + name + (n > 1 ? " (" + std::to_string(n) + ")" : "");
    }
    return text;
  }

 private:
  std::map<std::string, std::int64_t> names_;
  std::int64_t count_ = 0;
};

std::string where(const Call& c) {
  const std::string& label = c.origin.name();
  return label.empty() || c.name.find(label) != std::string::npos ? c.name : c.name + " at " + label;
}
std::string called(const Origin& o, const std::string& function) {
  if (!o.label.empty()) return o.label;
  if (!o.region.empty()) return "library kernel in " + o.region;
  return function.empty() ? "unnamed" : function.substr(0, 120);
}

template <class Kinds>
Found calls(const Trace& t, Window window, const Kinds& wanted) {
  Found f;
  for (const Call& c : t.calls) {
    if (c.at.window == window && wanted(c)) f.add(where(c));
  }
  return f;
}

/// How often each number of a window occurs in `per`: the least and the most, windows without any included.
struct Span {
  std::int64_t least = 0, most = 0;
};
template <class Wanted>
Span per_window(const Trace& t, Window window, const std::set<std::int64_t>& numbers, const Wanted& wanted) {
  std::map<std::int64_t, std::int64_t> per;
  for (const std::int64_t n : numbers) per[n] = 0;
  for (const Call& c : t.calls) {
    if (c.at.window == window && wanted(c)) ++per[c.at.number];
  }
  if (per.empty()) return {};
  const auto [a, b] =
      std::minmax_element(per.begin(), per.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  return {a->second, b->second};
}
/// The windows that anything was seen in.
std::set<std::int64_t> numbers(const Trace& t, Window window) {
  std::set<std::int64_t> all;
  for (const Call& c : t.calls) {
    if (c.at.window == window) all.insert(c.at.number);
  }
  return all;
}

Row none_allowed(const char* table, const char* name, const Found& found) {
  return {table,         name, "0", std::to_string(found.count()), found.count() == 0 ? Verdict::ok : Verdict::broken,
          found.detail()};
}
Row at_most(const char* table, const char* name, std::int64_t allowed, std::int64_t measured,
            const std::string& detail) {
  return {table,
          name,
          "at most " + std::to_string(allowed),
          std::to_string(measured),
          measured <= allowed ? Verdict::ok : Verdict::broken,
          measured <= allowed ? "" : detail};
}
Row unseen(const char* table, const char* name, const char* allowed, const char* why) {
  return {table, name, allowed, "n/a", Verdict::unseen, why};
}

constexpr const char* needs_device = "no device";
constexpr const char* step = "step";

bool waits(const Call& c) {
  return c.kind == CallKind::synchronisation || c.kind == CallKind::event_wait || c.kind == CallKind::poll;
}

/// Recordings of whole steps or of their parts.
std::vector<const Recording*> step_recordings(const Trace& t) {
  std::vector<const Recording*> all;
  for (const Recording& r : t.recordings) {
    if (r.at.window == Window::step_setup || r.at.window == Window::step) all.push_back(&r);
  }
  return all;
}

/// All that a step launches, by origin: the nodes of its recordings, and what runs without a graph.
void each_launch(const Trace& t, const std::function<void(const Origin&, const std::string&, std::int64_t)>& f) {
  for (const Recording* r : step_recordings(t)) {
    for (const Node& n : r->nodes) {
      if (n.kind == Node::kernel) f(n.origin, n.name, n.teams);
    }
  }
  for (const KernelRun& k : t.kernels) {
    if (k.at.window == Window::step) f(k.origin, k.name, k.teams);
  }
}

/// For each node all nodes that it waits for, itself included.
std::vector<std::vector<bool>> ancestors(const Recording& r) {
  const std::size_t n = r.nodes.size();
  std::vector<std::vector<bool>> above(n);
  const std::function<const std::vector<bool>&(std::size_t)> of = [&](std::size_t i) -> const std::vector<bool>& {
    if (!above[i].empty()) return above[i];
    std::vector<bool> mine(n, false);
    mine[i] = true;
    for (const int before : r.nodes[i].after) {
      const std::vector<bool>& theirs = of(static_cast<std::size_t>(before));
      for (std::size_t k = 0; k < n; ++k) mine[k] = mine[k] || theirs[k];
    }
    return above[i] = std::move(mine);
  };
  for (std::size_t i = 0; i < n; ++i) of(i);
  return above;
}

/// Pairs of forward passes of which one waits for the other. A pass is known by its first layer.
Found chained_passes(const Recording& r) {
  Found f;
  std::map<std::int64_t, std::vector<std::size_t>> passes;
  for (std::size_t i = 0; i < r.nodes.size(); ++i) {
    const Origin& o = r.nodes[i].origin;
    const bool first_layer = o.region == "vulpes::forward::trunk1" || o.label == "vulpes::forward::trunk1";
    if (first_layer && std::strcmp(o.part, "causal") != 0) passes[o.ordinal].push_back(i);
  }
  const auto above = ancestors(r);
  for (const auto& [a, from] : passes) {
    for (const auto& [b, to] : passes) {
      const bool path = a != b && std::any_of(to.begin(), to.end(), [&](std::size_t j) {
                          return std::any_of(from.begin(), from.end(), [&](std::size_t i) { return above[j][i]; });
                        });
      if (path) f.add(std::string(r.nodes[from[0]].origin.part) + " before " + r.nodes[to[0]].origin.part);
    }
  }
  return f;
}

bool on_tf32(const std::string& function) {
  return function.find("tf32") != std::string::npos || function.find("s1688gemm") != std::string::npos;
}

Row precision_row(const Trace& t, const Facts& facts) {
  int count[2][2] = {};
  Found wrong;
  for (const Recording* r : step_recordings(t)) {
    for (const Node& n : r->nodes) {
      if (n.kind != Node::kernel || n.origin.ours() || !n.origin.known) continue;
      const bool back = starts_with(n.origin.region, "vulpes::backward"), tf32 = on_tf32(n.name);
      ++count[back][tf32];
      if (tf32 && (back ? facts.backward : facts.forward) != "tf32") wrong.add(called(n.origin, n.name));
    }
  }
  const auto text = [&](int back) {
    return std::to_string(count[back][1]) + " of " + std::to_string(count[back][0] + count[back][1]);
  };
  const bool none_forward = facts.forward == "tf32" && count[0][1] == 0;
  return {step,
          "TF32 kernels of the library: forward, backward",
          facts.forward + ", " + facts.backward,
          text(0) + ", " + text(1),
          wrong.count() > 0 ? Verdict::broken : Verdict::ok,
          none_forward ? "the library chose none for these shapes" : wrong.detail()};
}

/// Rows about the launches of a step and what they declare.
void add_launch_rows(std::vector<Row>& rows, const Trace& t, const Facts& facts) {
  Found undeclared, unlabelled, unknown, movers, lone;
  std::set<std::string> seen;
  each_launch(t, [&](const Origin& o, const std::string& function, std::int64_t teams) {
    if (!seen.insert(o.label + "|" + o.region + "|" + function + "|" + std::to_string(teams)).second) return;
    if (is_accumulator(o)) return;
    if (!o.known) return unknown.add(called(o, function));
    if (!o.ours()) {
      if (o.region.empty()) unlabelled.add(called(o, function));
      return;
    }
    if (!starts_with(o.label, "vulpes::")) return unlabelled.add(o.label);
    const auto found = declared(o, facts);
    if (!found) return undeclared.add(o.label);
    const kernels::Work& work = found->work;
    if (work.flops == 0 && work.integers == 0 && work.bytes > move_bytes) movers.add(o.label);
    if (teams == 1 && found->elements >= one_team_elements) lone.add(o.label);
  });
  rows.push_back(none_allowed(step, "launches without a label vulpes::", unlabelled));
  rows.push_back(none_allowed(step, "kernels of ours without an entry in work.hpp", undeclared));
  rows.push_back(none_allowed(step, "kernels of ours that only move over 4 kB", movers));
  constexpr const char* lone_name = "kernels of ours with one team for 4096 elements or more";
  rows.push_back(t.device ? none_allowed(step, lone_name, lone) : unseen(step, lone_name, "0", needs_device));
  constexpr const char* unknown_name = "kernels that nobody was seen to launch";
  rows.push_back(t.device ? none_allowed(step, unknown_name, unknown) : unseen(step, unknown_name, "0", needs_device));
  rows.push_back(unseen(step, "DRAM bytes to declared bytes", "1.2", "ncu measures them (docs/audit.md)"));
}

Row spectral_row(const Trace& t, const std::set<std::int64_t>& steps) {
  std::int64_t most = 0;
  Found names;
  const auto count = [&](std::int64_t n) { most = std::max(most, n); };
  for (const Recording* r : step_recordings(t)) {
    std::int64_t n = 0;
    for (const Node& node : r->nodes) {
      const bool one = node.kind == Node::kernel && std::strcmp(node.origin.part, "spectral") == 0;
      if (one) names.add(called(node.origin, node.name));
      n += one;
    }
    count(n);
  }
  std::map<std::int64_t, std::int64_t> per;
  for (const KernelRun& k : t.kernels) {
    if (k.at.window != Window::step || std::strcmp(k.origin.part, "spectral") != 0) continue;
    names.add(called(k.origin, k.name));
    ++per[k.at.number];
  }
  for (const auto& [number, n] : per) count(n);
  if (most == 0 && steps.empty()) return unseen(step, "launches of the spectral norm", "at most 2", "no step was seen");
  return at_most(step, "launches of the spectral norm", 2, most, names.detail());
}

Row lone_library_row(const Trace& t) {
  constexpr const char* name = "library kernels with one team, over 5 us";
  if (!t.device) return unseen(step, name, "0", needs_device);
  std::map<std::string, std::vector<double>> times;
  for (const KernelRun& k : t.kernels) {
    if (k.at.window != Window::step || k.teams != 1 || k.origin.ours() || !k.origin.known) continue;
    times[k.origin.region + " " + k.name.substr(0, 60)].push_back(k.end - k.begin);
  }
  Found f;
  for (const auto& [kernel, seconds] : times) {
    if (median(seconds) > library_seconds) f.add(kernel);
  }
  return none_allowed(step, name, f);
}

Row launches_row(const Trace& t, const Facts& facts, const std::set<std::int64_t>& steps) {
  const bool split = facts.graph_mode == "split";
  const char* name = "graph launches a step";
  const char* allowed = split ? "1 to 7" : "1";
  if (!t.device) return unseen(step, name, allowed, needs_device);
  const Span s = per_window(t, Window::step, steps, [](const Call& c) { return c.kind == CallKind::graph_launch; });
  const bool good = s.least >= 1 && s.most <= (split ? 7 : 1);
  const std::string measured =
      s.least == s.most ? std::to_string(s.least) : std::to_string(s.least) + " to " + std::to_string(s.most);
  return {step,
          name,
          allowed,
          measured,
          good ? Verdict::ok : Verdict::broken,
          good ? "" : "graph.mode = " + facts.graph_mode};
}

/// Copies or memsets: calls, and nodes of the recordings.
Found moved(const Trace& t, CallKind kind, Node::Kind node, bool accumulators_allowed) {
  Found f = calls(t, Window::step,
                  [&](const Call& c) { return c.kind == kind && !(accumulators_allowed && is_accumulator(c.origin)); });
  for (const Recording* r : step_recordings(t)) {
    for (const Node& n : r->nodes) {
      if (n.kind != node || (accumulators_allowed && is_accumulator(n.origin))) continue;
      f.add("node of a graph at " + called(n.origin, n.name));
    }
  }
  return f;
}

}  // namespace

std::optional<Declared> declared(const Origin& o, const Facts& facts) {
  const bool online_forward = std::strcmp(o.part, "forward") == 0;
  const int rows = std::strcmp(o.part, "causal") == 0 ? facts.causal_rows
                   : online_forward                   ? 2 * facts.batch
                                                      : facts.batch;
  for (const std::string* name : {&o.label, &o.region}) {
    // A launch of several passes counts them itself.
    const int n = *name == "vulpes::forward::passes" ? facts.batch : rows;
    if (const auto work = kernels::work_of(*name, facts.sizes, n)) {
      return Declared{*work, kernels::elements_of(*name, facts.sizes, n)};
    }
  }
  return std::nullopt;
}

std::vector<Row> step_rows(const Trace& t, const Facts& facts, std::int64_t folds) {
  std::vector<Row> rows;
  const std::set<std::int64_t> steps = numbers(t, Window::step);
  rows.push_back({step, "steps seen", "1 or more", std::to_string(steps.size()),
                  steps.empty() ? Verdict::broken : Verdict::ok, ""});
  rows.push_back(at_most(step, "steps out of the ordinary (first uses, recordings)", folds * (2 + 2 * facts.variants),
                         static_cast<std::int64_t>(numbers(t, Window::step_setup).size()), "steps are recorded again"));
  rows.push_back(none_allowed(step, "synchronisations, polls, fences", calls(t, Window::step, waits)));
  rows.push_back(none_allowed(step, "copies", moved(t, CallKind::copy, Node::copy, false)));
  rows.push_back(none_allowed(step, "memsets but of accumulators", moved(t, CallKind::memset, Node::memset, true)));
  rows.push_back(none_allowed(step, "allocations", calls(t, Window::step, [](const Call& c) {
                                return c.kind == CallKind::allocation || c.kind == CallKind::deallocation;
                              })));
  rows.push_back(launches_row(t, facts, steps));
  rows.push_back(t.device
                     ? none_allowed(step, "launches besides the graph",
                                    calls(t, Window::step, [](const Call& c) { return c.kind == CallKind::launch; }))
                     : unseen(step, "launches besides the graph", "0", needs_device));
  rows.push_back(spectral_row(t, steps));
  add_launch_rows(rows, t, facts);
  rows.push_back(lone_library_row(t));
  constexpr const char* chained = "forward passes that wait for another";
  if (t.device) {
    rows.push_back(precision_row(t, facts));
    Found f;
    bool any = false;
    for (const Recording* r : step_recordings(t)) {
      const Found found = chained_passes(*r);
      if (found.count() > 0) f.add(found.detail());
      any = any || r->nodes.size() > 1;
    }
    rows.push_back(any ? none_allowed(step, chained, f) : unseen(step, chained, "0", "no graph was recorded"));
  } else {
    rows.push_back(unseen(step, "TF32 kernels of the library: forward, backward", "-", needs_device));
    rows.push_back(unseen(step, chained, "0", needs_device));
  }
  return rows;
}

std::vector<Row> epoch_rows(const Trace& t) {
  constexpr const char* table = "epoch boundary";
  const std::set<std::int64_t> seen = numbers(t, Window::epoch);
  std::vector<Row> rows;
  const auto at_epoch = [&](const auto& wanted) { return calls(t, Window::epoch, wanted); };
  const auto most = [&](const auto& wanted) { return per_window(t, Window::epoch, seen, wanted).most; };
  rows.push_back({table, "boundaries seen", "1 or more", std::to_string(seen.size()),
                  seen.empty() ? Verdict::broken : Verdict::ok, ""});
  const auto synchronises = [](const Call& c) {
    return c.kind == CallKind::synchronisation || c.kind == CallKind::poll;
  };
  rows.push_back(none_allowed(table, "synchronisations of device or stream, polls, fences", at_epoch(synchronises)));
  // For the figures of the epoch before, whose end is an epoch ago.
  const auto event = [](const Call& c) { return c.kind == CallKind::event_wait; };
  rows.push_back(
      t.device ? at_most(table, "waits for the event of an earlier epoch", 1, most(event), at_epoch(event).detail())
               : unseen(table, "waits for the event of an earlier epoch", "at most 1", needs_device));
  const auto snapshot = [](const Call& c) {
    return c.kind == CallKind::copy && c.origin.label == "vulpes::validator::snapshot";
  };
  const auto other = [&](const Call& c) { return c.kind == CallKind::copy && !snapshot(c); };
  rows.push_back(at_most(table, "copies of a snapshot", 1, most(snapshot), at_epoch(snapshot).detail()));
  rows.push_back(at_most(table, "copies of metrics and others", 1, most(other), at_epoch(other).detail()));
  rows.push_back(none_allowed(table, "memsets", at_epoch([](const Call& c) { return c.kind == CallKind::memset; })));
  rows.push_back(none_allowed(table, "allocations", at_epoch([](const Call& c) {
                                return c.kind == CallKind::allocation || c.kind == CallKind::deallocation;
                              })));
  return rows;
}

std::vector<Row> fold_rows(const Trace& t, const FoldFacts& folds) {
  constexpr const char* table = "fold change";
  std::vector<Row> rows;
  const auto all_equal = [](const auto& v) {
    return std::all_of(v.begin(), v.end(), [&](const auto& x) { return x == v.front(); });
  };
  const auto list = [](const std::vector<std::int64_t>& v) {
    std::string text;
    for (const std::int64_t x : v) text += (text.empty() ? "" : ", ") + std::to_string(x);
    return text;
  };
  const bool several = folds.setups.size() > 1;
  rows.push_back({table, "folds seen", "2 or more", std::to_string(folds.setups.size()),
                  several ? Verdict::ok : Verdict::broken, ""});
  rows.push_back({table, "a fold of the run equals the fold alone", "bit for bit",
                  !folds.same_alone   ? "n/a"
                  : *folds.same_alone ? "equal"
                                      : "differs",
                  !folds.same_alone   ? Verdict::unseen
                  : *folds.same_alone ? Verdict::ok
                                      : Verdict::broken,
                  !folds.same_alone || *folds.same_alone ? "" : "something was not reset"});
  const bool eager = several && all_equal(folds.setups) && folds.setups.front() >= 2;
  rows.push_back({table, "first steps kernel by kernel and recordings, of each fold", "the same, 2 or more",
                  list(folds.setups), eager ? Verdict::ok : Verdict::broken, ""});
  if (t.device) {
    const bool anew = several && all_equal(folds.recordings) && folds.recordings.front() > 0;
    rows.push_back({table, "graphs recorded for the steps of each fold", "the same, 1 or more", list(folds.recordings),
                    anew ? Verdict::ok : Verdict::broken, ""});
  } else {
    rows.push_back(unseen(table, "graphs recorded for the steps of each fold", "the same, 1 or more", needs_device));
  }
  double growth = 0;
  for (const double b : folds.bytes) growth = std::max(growth, b - folds.bytes.front());
  rows.push_back({table, "bytes allocated after a fold more than after the first", "0",
                  std::to_string(static_cast<std::int64_t>(growth)), growth > 0 ? Verdict::broken : Verdict::ok, ""});
  return rows;
}

Row gate_row(const GateFacts& g) {
  const std::string name = "steps queued while the device stands still";
  const std::string allowed = std::to_string(g.wanted) + " or more";
  if (!g.unseen.empty()) return {step, name, allowed, "n/a", Verdict::unseen, g.unseen};
  const bool good = g.queued >= g.wanted && !g.released_by_time;
  return {step,
          name,
          allowed,
          std::to_string(g.queued),
          good ? Verdict::ok : Verdict::broken,
          good ? "" : "the host waited for the device"};
}

}  // namespace vulpes::audit
