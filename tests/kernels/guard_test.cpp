// The guard: refused steps, the norm's bound, rollbacks, the stop; on all enabled host spaces.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "vulpes/kernels/formulas/pruning.hpp"
#include "vulpes/kernels/metrics.hpp"
#include "vulpes/kernels/optimise.hpp"

namespace vulpes::kernels {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double no_clip = 1e30;

GuardRules spikes() {
  GuardRules r;
  r.spike_factor = 4;
  r.spike_floor = 2;
  r.norm_rate = 0.1;
  return r;
}

StepCounters after(const GuardRules& rules, StepCounters c, const std::vector<double>& norms) {
  for (const double norm : norms) c = judge(rules, c, norm, no_clip);
  return c;
}

TEST(Guard, ASpikeIsRefusedAndEntersTheMeanCapped) {
  StepCounters c = after(spikes(), {}, std::vector<double>(50, 1.0));
  EXPECT_DOUBLE_EQ(c.norm_mean, 1.0);
  c = judge(spikes(), c, 100.0, no_clip);
  EXPECT_EQ(c.skip, 1u);
  EXPECT_EQ(c.fault, Fault::spike);
  EXPECT_EQ(c.fault_norm, 100.0);
  EXPECT_EQ(c.fault_iteration, 50u);
  EXPECT_DOUBLE_EQ(c.norm_mean, 1.0 + 0.1 * (4.0 - 1.0));
  EXPECT_EQ(c.adam_t, 50u);
  EXPECT_EQ(c.iteration, 51u);
}

TEST(Guard, TheFloorIsNeverASpike) {
  const StepCounters c = after(spikes(), {}, std::vector<double>(50, 0.01));
  EXPECT_EQ(judge(spikes(), c, 2.0, no_clip).skip, 0u);
  EXPECT_EQ(judge(spikes(), c, 2.1, no_clip).skip, 1u);
}

TEST(Guard, TheBoundReopensAfterALastingChangeOfScale) {
  StepCounters c = after(spikes(), {}, std::vector<double>(100, 1.0));
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    c = judge(spikes(), c, 50.0, no_clip);
    refused += static_cast<int>(c.skip);
  }
  EXPECT_GT(refused, 3);
  EXPECT_LT(refused, 20);
  EXPECT_EQ(c.skip, 0u);
  EXPECT_NEAR(c.norm_mean, 50.0, 1.0);
}

TEST(Guard, IsNotArmedBeforeItsIteration) {
  GuardRules rules = spikes();
  rules.armed_at = 10;
  const StepCounters c = after(rules, {}, {1, 1, 1, 1, 1});
  EXPECT_EQ(judge(rules, c, 1000.0, no_clip).skip, 0u);
  EXPECT_EQ(judge(rules, c, nan, no_clip).skip, 1u);  // NaN is refused at any time
}

TEST(Guard, NaNNeverEntersTheMean) {
  StepCounters c = after(spikes(), {}, {1, nan, 1, HUGE_VAL, 1});
  EXPECT_DOUBLE_EQ(c.norm_mean, 1.0);
  EXPECT_EQ(c.skipped, 2u);
  EXPECT_EQ(c.skips_in_a_row, 0u);
  EXPECT_EQ(c.adam_t, 3u);
  c = judge(spikes(), StepCounters{}, nan, no_clip);  // the very first step too
  EXPECT_EQ(c.skip, 1u);
  EXPECT_EQ(c.norm_mean, 0.0);
}

TEST(Guard, PatienceRollsBackThenStops) {
  GuardRules rules;
  rules.patience = 3;
  rules.max_rollbacks = 2;
  rules.snapshot_every = 4;
  StepCounters c = after(rules, {}, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(c.snapshot_adam_t, 4u);
  for (std::uint32_t rollback = 1; rollback <= 2; ++rollback) {
    c = after(rules, c, {nan, nan});
    EXPECT_EQ(c.rollbacks, rollback - 1);
    const StepCounters before = c;
    c = judge(rules, c, nan, no_clip);
    EXPECT_TRUE(rolls_back(before, c));
    EXPECT_EQ(c.rollbacks, rollback);
    EXPECT_EQ(c.adam_t, 4u);
    EXPECT_DOUBLE_EQ(c.rate_multiplier, std::pow(0.5, rollback));
    EXPECT_EQ(c.stopped, 0u);
  }
  c = after(rules, c, {nan, nan, nan});
  EXPECT_EQ(c.stopped, 1u);
  EXPECT_EQ(c.rollbacks, 2u);
  const std::uint64_t iteration = c.iteration;
  c = after(rules, c, {1, 1, nan});  // sticky: nothing moves, not even the iteration
  EXPECT_EQ(c.iteration, iteration);
  EXPECT_EQ(c.skip, 1u);
  EXPECT_EQ(c.idle, 1u);
}

template <class Space>
class GuardedUpdate : public testing::Test {
 protected:
  static constexpr int size = 9000;  // several chunks
  Space space;
  ParameterLayout layout = [] {
    ParameterLayout l;
    l.add("w", 90, 100, true);
    return l;
  }();
  OptimiserWork<Space> work{space, layout};
  OptimiserBuffers<Space, float> b;
  StepStateRef<Space> state{"state"};
  OptimiserRules rules;
  LossBuffers<Space, float> loss{space, {8, 8, 8, 0, 8, 2}, 16, "loss"};
  Matrix<double, Space> ring{"ring", 64, step_outputs};

  void SetUp() override {
    auto& s = b.snapshot;
    for (auto* v : {&b.parameters, &b.target, &b.gradient, &b.first_moment, &b.second_moment, &s.parameters, &s.target,
                    &s.first_moment, &s.second_moment}) {
      *v = Vector<float, Space>("buffer", layout.size());
    }
    b.mask = Vector<std::uint32_t, Space>("mask", layout.size() / mask_bits);
    s.mask = Vector<std::uint32_t, Space>("mask", layout.size() / mask_bits);
    b.singular = Vector<float, Space>("singular", 2 * 190);
    s.singular = Vector<float, Space>("singular", 190);
    rules.rate = Schedule::constant(0.01);
    rules.clip_norm = no_clip;
    rules.guard.patience = 3;
    rules.guard.max_rollbacks = 1;
    rules.guard.snapshot_every = 2;
  }
  void step(float gradient) {
    for (int i = 0; i < size; ++i) b.gradient(i) = gradient * std::sin(static_cast<float>(i + 1));
    // The spectral norm writes the half that the next update would read.
    const int half = static_cast<int>(b.snapshot.singular.extent(0));
    const int written = static_cast<int>(~state().now.adam_t & 1) * half;
    for (int i = 0; i < half; ++i) b.singular(written + i) = static_cast<float>(state().now.iteration + i);
    gradient_squares(space, work, b);
    optimise(space, work, rules, b, state);
    finish_step(space, loss, work, state, ring);
  }
  std::vector<float> everything() const {
    std::vector<float> all;
    for (const float* v : {b.parameters.data(), b.target.data(), b.first_moment.data(), b.second_moment.data()}) {
      all.insert(all.end(), v, v + size);
    }
    for (std::size_t w = 0; w < b.mask.extent(0); ++w) all.push_back(static_cast<float>(b.mask(w)));
    const int half = static_cast<int>(b.snapshot.singular.extent(0));
    const float* vectors = b.singular.data() + (state().now.adam_t & 1) * half;
    all.insert(all.end(), vectors, vectors + half);
    return all;
  }
};
#define VULPES_AND_SPACE(S) , S
template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
using HostSpaces = SpaceList < void VULPES_FOR_EACH_HOST_SPACE(VULPES_AND_SPACE)
> ::Types;
TYPED_TEST_SUITE(GuardedUpdate, HostSpaces);

TYPED_TEST(GuardedUpdate, ARefusedStepLeavesEveryBufferBitEqual) {
  for (int i = 0; i < 3; ++i) this->step(1.0f);
  const auto before = this->everything();
  const std::uint64_t iteration = this->state().now.iteration;
  this->step(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(this->everything(), before);
  EXPECT_EQ(this->state().now.iteration, iteration + 1);
  EXPECT_EQ(this->state().now.skipped, 1u);
}

TYPED_TEST(GuardedUpdate, ARollbackBringsBackTheSnapshotWithItsMaskAndVectors) {
  this->step(1.0f);
  this->b.mask(3) = 0xf0f0u;  // as a pruning between two steps
  this->step(1.0f);
  ASSERT_EQ(this->state().now.snapshot_adam_t, 2u);
  const auto snapshot = this->everything();
  this->step(1.0f);
  this->b.mask(3) = ~0u;
  EXPECT_NE(this->everything(), snapshot);
  for (int i = 0; i < 3; ++i) this->step(std::numeric_limits<float>::infinity());
  EXPECT_EQ(this->state().now.rollbacks, 1u);
  EXPECT_EQ(this->everything(), snapshot);
  EXPECT_DOUBLE_EQ(this->state().now.rate_multiplier, 0.5);
  // It goes on with half the rate.
  const float w = this->b.parameters(0);
  this->step(1.0f);
  EXPECT_NE(this->b.parameters(0), w);
  // The second rollback is one too many.
  for (int i = 0; i < 3; ++i) this->step(std::numeric_limits<float>::infinity());
  EXPECT_EQ(this->state().now.stopped, 1u);
  const auto frozen = this->everything();
  const std::uint64_t iteration = this->state().now.iteration;
  this->step(1.0f);
  EXPECT_EQ(this->everything(), frozen);
  EXPECT_EQ(this->state().now.iteration, iteration);
}

TYPED_TEST(GuardedUpdate, PrunedElementsStayZeroAndCountInNoNorm) {
  this->b.mask(0) = 1u << 5;
  this->step(1.0f);
  const double with = this->state().now.gradient_norm;
  double sum = 0;
  for (int i = 0; i < this->size; ++i) sum += i == 5 ? 0.0 : std::pow(std::sin(static_cast<double>(i + 1)), 2);
  EXPECT_NEAR(with, std::sqrt(sum), 1e-4);
  EXPECT_EQ(this->b.parameters(5), 0.0f);
  EXPECT_EQ(this->b.target(5), 0.0f);
  EXPECT_EQ(this->b.first_moment(5), 0.0f);
  EXPECT_NE(this->b.parameters(6), 0.0f);
}

}  // namespace
}  // namespace vulpes::kernels
