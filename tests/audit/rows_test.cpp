// Each row of the audit on events made by hand: what it counts, what it lets pass, what breaks it.
#include "vulpes/audit/rows.hpp"

#include <gtest/gtest.h>

#include "vulpes/audit/times.hpp"

namespace vulpes::audit {
namespace {

Facts facts() {
  Facts f;
  f.sizes.shape = {32, 128, 64, 1, 64, 51};
  f.sizes.feature_columns = 27;
  f.sizes.tree_levels = 4;
  f.batch = 256;
  return f;
}

Origin ours(const char* label, const char* part = "") { return {label, "", part, true, 0}; }
Origin library(const char* region, const char* part, std::int64_t ordinal) { return {"", region, part, true, ordinal}; }
Node kernel(Origin origin, std::int64_t teams, std::vector<int> after, const char* function = "f") {
  return {Node::kernel, std::move(origin), function, teams, std::move(after)};
}
Call call(CallKind kind, Window window, std::int64_t number, const char* name = "call", Origin origin = {}) {
  return {kind, name, {window, number, ""}, std::move(origin)};
}

/// Two steps of one graph as they should be: the target's forward pass beside the spectral norm and the online one.
Trace good_step() {
  Trace t;
  t.device = true;
  for (const std::int64_t n : {1, 2}) t.calls.push_back(call(CallKind::graph_launch, Window::step, n, "launch"));
  t.calls.push_back(call(CallKind::recording, Window::step_setup, 3, "instantiate"));
  const char* tf32 = "sm80_tf32_gemm";
  t.recordings.push_back({{Window::step_setup, 3, ""},
                          {kernel(ours("vulpes::sample::draw", "sample"), 8, {}),
                           kernel(library("vulpes::forward::trunk1", "forward_ddqn", 11), 4, {0}, tf32),
                           kernel(ours("vulpes::spectral::left", "spectral"), 9, {0}),
                           kernel(ours("vulpes::spectral::right", "spectral"), 9, {2}),
                           kernel(library("vulpes::forward::trunk1", "forward", 12), 8, {3}, tf32),
                           kernel(library("vulpes::forward::trunk1", "forward", 12), 1, {4}, "splitKreduce"),
                           kernel(ours("vulpes::loss", "loss"), 32, {1, 5}),
                           kernel(library("vulpes::backward::hidden_inputs", "backward", 14), 4, {6}, "simt_sgemm"),
                           kernel(ours("vulpes::gemm::epilogue", "backward"), 4, {7})}});
  t.recordings[0].nodes.back().origin.region = "vulpes::backward::hidden_inputs";
  return t;
}

const Row& row(const std::vector<Row>& rows, const std::string& name) {
  for (const Row& r : rows) {
    if (r.name == name) return r;
  }
  throw std::runtime_error("no row '" + name + "'");
}
Verdict verdict(const Trace& t, const std::string& name, const Facts& f = facts()) {
  return row(step_rows(t, f, 2), name).verdict;
}

TEST(StepRows, HoldForAGoodStep) {
  for (const Row& r : step_rows(good_step(), facts(), 2)) {
    EXPECT_TRUE(r.verdict == Verdict::ok || r.name == "DRAM bytes to declared bytes") << r.name << ": " << r.detail;
  }
}

TEST(StepRows, WithoutAStepNothingIsVouchedFor) { EXPECT_EQ(verdict(Trace{}, "steps seen"), Verdict::broken); }

TEST(StepRows, EachCallInAStepBreaksItsRowAndNoOther) {
  const struct {
    CallKind kind;
    const char* row;
  } cases[] = {{CallKind::synchronisation, "synchronisations, polls, fences"},
               {CallKind::event_wait, "synchronisations, polls, fences"},
               {CallKind::poll, "synchronisations, polls, fences"},
               {CallKind::copy, "copies"},
               {CallKind::memset, "memsets but of accumulators"},
               {CallKind::allocation, "allocations"},
               {CallKind::deallocation, "allocations"},
               {CallKind::launch, "launches besides the graph"},
               {CallKind::graph_launch, "graph launches a step"}};
  for (const auto& c : cases) {
    Trace t = good_step();
    t.calls.push_back(call(c.kind, Window::collection, 1));
    t.calls.push_back(call(c.kind, Window::validation, 1));
    for (const Row& r : step_rows(t, facts(), 2)) EXPECT_NE(r.verdict, Verdict::broken) << r.name;
    t.calls.push_back(call(c.kind, Window::step, 2, "the culprit"));
    for (const Row& r : step_rows(t, facts(), 2)) {
      EXPECT_EQ(r.verdict == Verdict::broken, r.name == c.row) << r.name;
      const bool names_it = c.kind == CallKind::graph_launch || r.detail.find("the culprit") != std::string::npos;
      EXPECT_TRUE(r.name != c.row || names_it) << r.detail;
    }
  }
}

TEST(StepRows, AStepWithoutAGraphIsBroken) {
  Trace t = good_step();
  t.calls.push_back(call(CallKind::launch, Window::step, 3));
  EXPECT_EQ(verdict(t, "graph launches a step"), Verdict::broken);
}

TEST(StepRows, SplitModeHasSevenGraphs) {
  Trace t = good_step();
  Facts f = facts();
  f.graph_mode = "split";
  for (int i = 1; i < 7; ++i) t.calls.push_back(call(CallKind::graph_launch, Window::step, 1));
  EXPECT_EQ(verdict(t, "graph launches a step"), Verdict::broken);
  EXPECT_EQ(verdict(t, "graph launches a step", f), Verdict::ok);
  t.calls.push_back(call(CallKind::graph_launch, Window::step, 1));
  EXPECT_EQ(verdict(t, "graph launches a step", f), Verdict::broken);
}

TEST(StepRows, NodesCountAsCopiesAndMemsetsButForAccumulators) {
  Trace t = good_step();
  t.recordings[0].nodes.push_back({Node::memset, ours("vulpes::pruning::histograms"), "", 0, {}});
  EXPECT_EQ(verdict(t, "memsets but of accumulators"), Verdict::ok);
  t.recordings[0].nodes.push_back({Node::memset, ours("vulpes::learner::gradient"), "", 0, {}});
  EXPECT_EQ(verdict(t, "memsets but of accumulators"), Verdict::broken);
  EXPECT_EQ(verdict(t, "copies"), Verdict::ok);
  t.recordings[0].nodes.push_back({Node::copy, ours("vulpes::learner::gradient"), "", 0, {}});
  EXPECT_EQ(verdict(t, "copies"), Verdict::broken);
  // A collection's graph is none of a step.
  Trace collection = good_step();
  collection.recordings.push_back({{Window::collection, 1, ""}, {{Node::copy, ours("vulpes::x"), "", 0, {}}}});
  EXPECT_EQ(verdict(collection, "copies"), Verdict::ok);
}

TEST(StepRows, AThirdSpectralLaunchIsBroken) {
  Trace t = good_step();
  t.recordings[0].nodes.push_back(kernel(ours("vulpes::spectral::right", "spectral"), 9, {3}));
  EXPECT_EQ(verdict(t, "launches of the spectral norm"), Verdict::broken);
}

TEST(StepRows, OneTeamMayCoverFewElementsOnly) {
  constexpr const char* name = "kernels of ours with one team for 4096 elements or more";
  Trace t = good_step();
  t.recordings[0].nodes.push_back(kernel(ours("vulpes::sample::priorities", "priorities"), 1, {}));
  EXPECT_EQ(verdict(t, name), Verdict::ok);
  Facts more = facts();
  more.batch = 4096;
  EXPECT_EQ(verdict(t, name, more), Verdict::broken);
}

TEST(StepRows, EveryKernelOfOursIsLabelledAndDeclared) {
  Trace t = good_step();
  t.recordings[0].nodes.push_back(kernel(ours("vulpes::loss::extra", "loss"), 4, {}));
  EXPECT_EQ(verdict(t, "kernels of ours without an entry in work.hpp"), Verdict::broken);
  t = good_step();
  t.recordings[0].nodes.push_back(kernel(ours("extra", "loss"), 4, {}));
  EXPECT_EQ(verdict(t, "launches without a label vulpes::"), Verdict::broken);
  t = good_step();
  t.recordings[0].nodes.push_back(kernel(library("", "loss", 20), 4, {}));
  EXPECT_EQ(verdict(t, "launches without a label vulpes::"), Verdict::broken);
  t = good_step();
  t.recordings[0].nodes.push_back(kernel({}, 4, {}, "somebody's kernel"));
  EXPECT_EQ(verdict(t, "kernels that nobody was seen to launch"), Verdict::broken);
}

TEST(StepRows, AKernelThatOnlyMovesIsBroken) {
  Trace t = good_step();
  t.recordings[0].nodes.push_back(kernel(ours("vulpes::collect::begin_episodes", "loss"), 4, {}));
  EXPECT_EQ(verdict(t, "kernels of ours that only move over 4 kB"), Verdict::broken);
  Facts few = facts();
  few.batch = 16;
  EXPECT_EQ(verdict(t, "kernels of ours that only move over 4 kB", few), Verdict::ok);
}

TEST(StepRows, ForwardPassesMayNotWaitForEachOther) {
  constexpr const char* name = "forward passes that wait for another";
  Trace t = good_step();
  t.recordings[0].nodes[1].after = {5};  // the target's pass after the online one
  EXPECT_EQ(verdict(t, name), Verdict::broken);
  t = good_step();
  t.recordings[0].nodes[2].after = {1};  // the other way round, by way of the spectral norm
  EXPECT_EQ(verdict(t, name), Verdict::broken);
  // The measurement's own pass comes after.
  t = good_step();
  t.recordings[0].nodes.push_back(kernel(library("vulpes::forward::trunk1", "causal", 30), 4, {6}));
  EXPECT_EQ(verdict(t, name), Verdict::ok);
}

TEST(StepRows, PrecisionIsAsConfigured) {
  constexpr const char* name = "TF32 kernels of the library: forward, backward";
  Trace t = good_step();
  t.recordings[0].nodes[7].name = "sm80_tf32_gemm";
  EXPECT_EQ(verdict(t, name), Verdict::broken);
  Facts f = facts();
  f.backward = "tf32";
  EXPECT_EQ(verdict(t, name, f), Verdict::ok);
  f.forward = "fp32";
  EXPECT_EQ(verdict(t, name, f), Verdict::broken);
}

TEST(StepRows, StepsAreNotRecordedAgainAndAgain) {
  Trace t = good_step();
  for (int i = 10; i < 17; ++i) t.calls.push_back(call(CallKind::recording, Window::step_setup, i));
  EXPECT_EQ(verdict(t, "steps out of the ordinary (first uses, recordings)"), Verdict::ok);  // 2 folds of 4
  t.calls.push_back(call(CallKind::recording, Window::step_setup, 17));
  EXPECT_EQ(verdict(t, "steps out of the ordinary (first uses, recordings)"), Verdict::broken);
}

TEST(StepRows, ALongLibraryKernelWithOneTeamIsBroken) {
  Trace t = good_step();
  const auto run = [&](double us) {
    t.kernels = {
        {library("vulpes::backward::trunk1_weights", "backward", 1), "gemm", {Window::step, 1, ""}, 1, 0.0, 1e-6 * us}};
    return verdict(t, "library kernels with one team, over 5 us");
  };
  EXPECT_EQ(run(4), Verdict::ok);
  EXPECT_EQ(run(6), Verdict::broken);
}

TEST(StepRows, AHostSaysWhatItCannotSee) {
  Trace t;
  t.calls = {call(CallKind::launch, Window::step, 1)};
  int unseen = 0;
  for (const Row& r : step_rows(t, facts(), 2)) {
    EXPECT_NE(r.verdict, Verdict::broken) << r.name;
    unseen += r.verdict == Verdict::unseen;
  }
  EXPECT_EQ(unseen, 8);
}

TEST(EpochRows, AllowOneSnapshotAndOneOtherCopyAndOneEvent) {
  Trace t;
  t.device = true;
  const Origin snapshot = ours("vulpes::validator::snapshot");
  for (const std::int64_t n : {1, 2}) {
    t.calls.push_back(call(CallKind::copy, Window::epoch, n, "copy", snapshot));
    t.calls.push_back(call(CallKind::copy, Window::epoch, n));
    t.calls.push_back(call(CallKind::event_wait, Window::epoch, n));
  }
  for (const Row& r : epoch_rows(t)) EXPECT_EQ(r.verdict, Verdict::ok) << r.name;
  const struct {
    Call call;
    const char* row;
  } cases[] = {
      {call(CallKind::copy, Window::epoch, 2, "copy", snapshot), "copies of a snapshot"},
      {call(CallKind::copy, Window::epoch, 2), "copies of metrics and others"},
      {call(CallKind::event_wait, Window::epoch, 1), "waits for the event of an earlier epoch"},
      {call(CallKind::synchronisation, Window::epoch, 1), "synchronisations of device or stream, polls, fences"},
      {call(CallKind::memset, Window::epoch, 1), "memsets"},
      {call(CallKind::allocation, Window::epoch, 1), "allocations"}};
  for (const auto& c : cases) {
    Trace broken = t;
    broken.calls.push_back(c.call);
    for (const Row& r : epoch_rows(broken)) EXPECT_EQ(r.verdict == Verdict::broken, r.name == c.row) << r.name;
  }
  EXPECT_EQ(row(epoch_rows(Trace{}), "boundaries seen").verdict, Verdict::broken);
}

TEST(FoldRows, AskThatEverythingIsMadeAnew) {
  Trace t;
  t.device = true;
  const FoldFacts good{{1e6, 1e6}, {4, 4}, {2, 2}, true};
  for (const Row& r : fold_rows(t, good)) EXPECT_EQ(r.verdict, Verdict::ok) << r.name;
  const auto broken = [&](FoldFacts f) {
    std::string names;
    for (const Row& r : fold_rows(t, f)) names += r.verdict == Verdict::broken ? r.name : "";
    return names;
  };
  FoldFacts f = good;
  f.same_alone = false;
  EXPECT_EQ(broken(f), "a fold of the run equals the fold alone");
  f = good;
  f.setups = {4, 0};
  EXPECT_EQ(broken(f), "first steps kernel by kernel and recordings, of each fold");
  f = good;
  f.recordings = {2, 0};
  EXPECT_EQ(broken(f), "graphs recorded for the steps of each fold");
  f = good;
  f.bytes = {1e6, 1e6 + 8};
  EXPECT_EQ(broken(f), "bytes allocated after a fold more than after the first");
}

TEST(GateRow, CountsWhatWasQueued) {
  EXPECT_EQ(gate_row({64, 70, false, ""}).verdict, Verdict::ok);
  EXPECT_EQ(gate_row({64, 63, false, ""}).verdict, Verdict::broken);
  EXPECT_EQ(gate_row({64, 70, true, ""}).verdict, Verdict::broken);
  EXPECT_EQ(gate_row({64, 0, false, "a host"}).verdict, Verdict::unseen);
}

TEST(StepTimes, AreMediansOfBusyTimeAndOverlap) {
  std::vector<KernelRun> kernels;
  for (const std::int64_t n : {1, 2, 3}) {
    const double at = 10.0 * static_cast<double>(n);
    const auto add = [&](const char* part, double begin, double end) {
      kernels.push_back({ours("vulpes::x", part), "", {Window::step, n, ""}, 8, at + begin, at + end});
    };
    add("sample", 0, 1);
    add("forward", 2, 4);
    add("forward", 3, 5);       // 3 s with the one before
    add("forward_ddqn", 1, 3);  // half of it beside the other
    kernels.push_back({ours("vulpes::x", "loss"), "", {Window::epoch, n, ""}, 8, at, at + 9});
  }
  const StepTimes t = step_times(kernels);
  ASSERT_EQ(t.parts.size(), 3u);
  EXPECT_EQ(t.steps, 3);
  EXPECT_EQ(t.parts[1].part, "forward");
  EXPECT_DOUBLE_EQ(t.parts[1].seconds, 3);
  EXPECT_DOUBLE_EQ(t.parts[1].overlapped, 1.0 / 3);
  EXPECT_DOUBLE_EQ(t.parts[1].kernels, 2);
  EXPECT_EQ(t.parts[2].part, "forward_ddqn");
  EXPECT_DOUBLE_EQ(t.parts[2].overlapped, 0.5);
  EXPECT_DOUBLE_EQ(t.span, 5);
  EXPECT_DOUBLE_EQ(t.busy, 5);
  EXPECT_DOUBLE_EQ(t.period, 10);
}

}  // namespace
}  // namespace vulpes::audit
