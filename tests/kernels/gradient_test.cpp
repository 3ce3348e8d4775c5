// The gradient of the whole loss against central differences, in double, for every parameter of every tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/network_fixture.hpp"

namespace vulpes::kernels {
namespace {

using Space = Kokkos::Serial;

struct Case {
  const char* name;
  double blend;
  bool per_branch;
  int blocks;
  int left_out = -1;  // the only residual block that stochastic depth leaves out, from 1; 0: none; -1: off
  double trunk_scale = 1;
  double hidden_weight = 0;  // of another loss, linear in the heads' hidden activations at s
};

bool below_heads(const std::string& tensor) { return tensor.rfind("trunk", 0) == 0 || tensor.rfind("block", 0) == 0; }

/// Half of the last block's draws leave it out; the first iteration at which just block `left_out` is (0: none is).
StochasticDepth depth_leaving_out(int left_out, int blocks, int rows, std::uint64_t* iteration) {
  StochasticDepth depth{{5, 2}, iteration, Schedule::constant(0.5), rows};
  for (*iteration = 0;; ++*iteration) {
    bool found = true;
    for (int l = 1; l <= blocks; ++l) found &= (block_factor(depth, l, blocks) == 0) == (l == left_out);
    if (found) return depth;
  }
}

class GradientTest : public testing::TestWithParam<Case> {};

TEST_P(GradientTest, AgreesWithCentralDifferencesInEveryTensor) {
  const Case c = GetParam();
  test::LossProblem<Space, double> problem({8, 16, 8, c.blocks, 8, 11}, 16, /*seed=*/7);
  problem.blend = c.blend;
  problem.per_branch = c.per_branch;
  problem.options.trunk_scale = c.trunk_scale;
  std::uint64_t iteration = 0;
  if (c.left_out >= 0) problem.options.depth = depth_leaving_out(c.left_out, c.blocks, problem.rows, &iteration);
  const auto hidden_loss = [&] {
    double sum = 0;
    for (int r = 0; r < problem.rows; ++r) {
      for (int j = 0; j < problem.network.shape.hidden_width(); ++j) sum += (1 + j % 3) * problem.both.hidden(r, j);
    }
    return c.hidden_weight * sum;
  };
  const auto run = [&] {
    const double loss = problem.run();  // first: it fills the activations
    return loss + hidden_loss();
  };
  run();
  if (c.hidden_weight != 0) {
    problem.options.hidden_gradient_added = true;
    for (int r = 0; r < problem.rows; ++r) {
      for (int j = 0; j < problem.network.shape.hidden_width(); ++j)
        problem.backward_buffers.hidden(r, j) = c.hidden_weight * (1 + j % 3);
    }
  }
  problem.run_backward();

  for (const TensorSlice& t : problem.network.layout.tensors()) {
    double largest = 0, error = 0;
    for (std::size_t i = t.offset; i < t.offset + t.size(); ++i) {
      const double saved = problem.online(i), h = 1e-5;
      problem.online(i) = saved + h;
      const double up = run();
      problem.online(i) = saved - h;
      const double down = run();
      problem.online(i) = saved;
      const double numeric = (up - down) / (2 * h) * (below_heads(t.name) ? c.trunk_scale : 1);
      largest = std::max(largest, std::abs(numeric));
      error = std::max(error, std::abs(numeric - problem.gradient(i)));
    }
    if (c.left_out > 0 && t.name.rfind("block." + std::to_string(c.left_out - 1) + ".", 0) == 0) {
      EXPECT_EQ(largest, 0) << t.name << " is left out, yet counts";
      EXPECT_EQ(error, 0) << t.name;
      continue;
    }
    EXPECT_GT(largest, 0) << t.name << " has no gradient: the test shows nothing";
    EXPECT_LT(error, 1e-6 * largest) << t.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Losses, GradientTest,
    testing::Values(Case{"mse", 0, false, 1}, Case{"c51", 1, false, 1}, Case{"blended", 0.3, false, 2},
                    Case{"per_branch", 0.6, true, 1}, Case{"no_blocks", 1, true, 0},
                    Case{"depth_keeps_all", 1, false, 2, 0}, Case{"depth_leaves_out_first", 1, false, 2, 1},
                    Case{"depth_leaves_out_last", 0.3, false, 2, 2},
                    Case{"depth_leaves_out_only_block", 1, false, 1, 1}, Case{"trunk_scale", 1, false, 1, -1, 0.25},
                    Case{"hidden_gradient", 1, false, 1, -1, 1, 0.05}, Case{"everything", 0.5, true, 2, 1, 0.25, 0.05}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(StochasticDepthTest, SurvivalOneChangesNoBit) {
  const NetworkShape shape{8, 16, 8, 2, 8, 11};
  test::LossProblem<Space, float> off(shape, 16, 3), on(shape, 16, 3);
  const std::uint64_t iteration = 17;
  on.options.depth = {{5, 2}, &iteration, Schedule::constant(1), 16};
  EXPECT_EQ(off.run(), on.run());
  off.run_backward();
  on.run_backward();
  for (std::size_t i = 0; i < off.gradient.extent(0); ++i) ASSERT_EQ(off.gradient(i), on.gradient(i)) << i;
}

TEST(StochasticDepthTest, LeavesTheNextStatesWhole) {
  const NetworkShape shape{8, 16, 8, 2, 8, 11};
  test::LossProblem<Space, double> off(shape, 16, 3), on(shape, 16, 3);
  std::uint64_t iteration = 0;
  on.options.depth = depth_leaving_out(2, 2, 16, &iteration);
  off.run();
  on.run();
  double change = 0;
  for (int k = 0; k < shape.logits(); ++k) {
    for (int r = 0; r < 16; ++r) change = std::max(change, std::abs(on.both.logits(k, r) - off.both.logits(k, r)));
    for (int r = 16; r < 32; ++r) ASSERT_EQ(on.both.logits(k, r), off.both.logits(k, r));
  }
  EXPECT_GT(change, 1e-3);
}

TEST(StochasticDepthTest, KeepsABlockAsOftenAsItSaysAndTheMean) {
  std::uint64_t iteration = 0;
  const StochasticDepth depth{{5, 2}, &iteration, Schedule::constant(0.6), 1};
  constexpr int n = 40000;
  for (int l = 1; l <= 4; ++l) {
    int kept = 0;
    double sum = 0;
    for (iteration = 0; iteration < n; ++iteration) {
      const double f = block_factor(depth, l, 4);
      kept += f > 0;
      sum += f;
    }
    const double q = 1 - 0.1 * l, deviation = std::sqrt(q * (1 - q) / n);
    EXPECT_NEAR(static_cast<double>(kept) / n, q, 4 * deviation) << l;
    EXPECT_NEAR(sum / n, 1, 4 * deviation / q) << l;
  }
}

#if defined(KOKKOS_ENABLE_OPENMP)
// Each thread takes its own rows through all layers; 80 rows are an odd number of units to share.
TEST(Passes, OfAllThreadsGiveWhatOneThreadGives) {
  const NetworkShape shape{16, 40, 24, 2, 16, 11};
  test::LossProblem<Kokkos::Serial, double> one(shape, 80, 3);
  test::LossProblem<Kokkos::OpenMP, double> all(shape, 80, 3);
  EXPECT_NEAR(one.run(), all.run(), 1e-12);
  one.run_backward();
  all.run_backward();
  for (std::size_t i = 0; i < one.gradient.extent(0); ++i) ASSERT_NEAR(one.gradient(i), all.gradient(i), 1e-13) << i;
}
#endif

}  // namespace
}  // namespace vulpes::kernels
