// Every launch of a training step, of collection and of a backtest declares its work (kernels/work.hpp), and the lists
// of launches there are what runs.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "trainer/training_parts.hpp"
#include "vulpes/evaluator/backtest.hpp"
#include "vulpes/kernels/causal.hpp"
#include "vulpes/kernels/work.hpp"

namespace vulpes::kernels {
namespace {

namespace tools = Kokkos::Tools::Experimental;

std::vector<std::string> heard;
int regions = 0;  // open regions, from one of ours on

/// Labels of the launches that `f` makes. A region of ours counts as one launch with all that a library runs inside.
template <class F>
std::vector<std::string> launches_of(const F& f) {
  const tools::EventSet before = tools::get_callbacks();
  heard.clear();
  regions = 0;
  const auto launch = [](const char* label, std::uint32_t, std::uint64_t*) {
    if (regions == 0 && std::strncmp(label, "vulpes::", 8) == 0) heard.push_back(label);
  };
  tools::set_begin_parallel_for_callback(launch);
  tools::set_begin_parallel_reduce_callback(launch);
  tools::set_begin_parallel_scan_callback(launch);
  tools::set_push_region_callback([](const char* label) {
    if (regions == 0 && std::strncmp(label, "vulpes::", 8) != 0) return;
    if (regions++ == 0) heard.push_back(label);
  });
  tools::set_pop_region_callback([] { regions -= regions > 0; });
  f();
  tools::set_callbacks(before);
  return heard;
}

std::vector<std::string> labels(const std::vector<Launch>& launches) {
  std::vector<std::string> all;
  for (const Launch& l : launches) all.push_back(l.label);
  return all;
}

void expect_entries(const std::vector<std::string>& launched, const WorkSizes& sizes, int rows) {
  for (const std::string& label : launched) {
    const auto work = work_of(label, sizes, rows);
    ASSERT_TRUE(work) << label << " declares no work: give it an entry in kernels/work.hpp";
    EXPECT_GT(work->bytes, 0) << label;
    EXPECT_GE(work->flops, 0) << label;
  }
}

template <class Space>
struct DeclaredWork : testing::Test {
  trainer::test::TrainingParts<Space> parts{Space()};
  WorkSizes sizes;

  DeclaredWork() {
    sizes.shape = parts.learner->network.shape;
    sizes.feature_columns = parts.data.features.columns;
    sizes.n_step = static_cast<int>(parts.config.agent.n_step);
    sizes.tree_levels = parts.replay.ring.tree.view.levels;
    sizes.replay_rows = parts.replay.ring.capacity();
    sizes.spectral_trunk = sizes.spectral_output = true;
  }
};
TYPED_TEST_SUITE(DeclaredWork, trainer::test::EachSpace);

TYPED_TEST(DeclaredWork, OfATrainingStep) {
  for (int i = 0; i < 3; ++i) this->parts.collect_bar();
  const auto launched = launches_of([&] { this->parts.step(); });
  expect_entries(launched, this->sizes, 32);
  EXPECT_EQ(launched, labels(training_step_launches(this->sizes, 32)));
}

TYPED_TEST(DeclaredWork, OfCollection) {
  const auto started = launches_of([&] {
    begin_episodes(this->parts.space, this->parts.arguments, this->parts.collect_buffers);
    refresh_new_priority(this->parts.space, this->parts.replay.ring);
  });
  expect_entries(started, this->sizes, 20);
  EXPECT_EQ(started.size(), 3u);
  const auto launched = launches_of([&] { this->parts.collect_bar(); });
  expect_entries(launched, this->sizes, 20);
  EXPECT_EQ(launched, labels(collection_launches(this->sizes, 20)));
}

TYPED_TEST(DeclaredWork, OfABacktest) {
  const auto range = this->parts.data.folds[0].validation;
  const std::vector<evaluator::Walk> walks = {
      {static_cast<std::uint32_t>(range.begin), static_cast<std::uint32_t>(range.begin + 3)}};
  const evaluator::Actor<TypeParam> actor{this->parts.learner->network, this->parts.rules.support,
                                          this->parts.learner->buffers.parameters};
  const auto launched = launches_of([&] {
    evaluator::backtest(this->parts.space, actor, this->parts.table, this->parts.arguments.rules,
                        this->parts.arguments.window, walks);
  });
  expect_entries(launched, this->sizes, 1);
  std::vector<std::string> expected = {"vulpes::backtest::begin"};
  for (int step = 0; step < 2; ++step) {
    for (const std::string& label : labels(backtest_launches(this->sizes, 1))) expected.push_back(label);
  }
  EXPECT_EQ(launched, expected);
}

TYPED_TEST(DeclaredWork, OfACausalMeasurement) {
  const Network& network = this->parts.learner->network;
  const FeatureGroups groups = feature_groups(this->parts.data.features, network.shape.state);
  const CausalBuffers<TypeParam> buffers(this->parts.space, network.shape, groups, 16, 2);
  const auto states = allocate_zeroed<Matrix<float, TypeParam>>(this->parts.space, "states", 32, network.shape.state);
  const auto iteration = allocate_zeroed<Vector<std::uint64_t, TypeParam>>(this->parts.space, "iteration", 1);
  const float* parameters = this->parts.learner->buffers.parameters.data();
  const auto launched = launches_of([&] {
    causal_delta<TypeParam>(this->parts.space, network, parameters,
                            parameters + network.layout[network.output_bias].offset, this->parts.rules.support,
                            this->parts.key, iteration.data(), 1, states, buffers);
  });
  expect_entries(launched, this->sizes, 16 * (buffers.groups + 1));
  EXPECT_EQ(launched, labels(causal_launches(buffers.groups, 16)));
}

TEST(Work, OfALayerByHand) {
  WorkSizes z;
  z.shape = {32, 128, 64, 1, 64, 51};
  // Y [512, 128] = ReLU(X [512, 32] W' [32, 128] + b): 2 * 512 * 128 * 32 + 2 * 512 * 128 flops.
  const Work w = *work_of("vulpes::forward::trunk1", z, 512);
  EXPECT_EQ(w.flops, 4'194'304 + 131'072);
  EXPECT_EQ(w.bytes, 4.0 * (512 * 32 + 128 * 32 + 512 * 128 + 128));
  EXPECT_FALSE(work_of("vulpes::forward::trunk3", z, 512));
}

}  // namespace
}  // namespace vulpes::kernels
