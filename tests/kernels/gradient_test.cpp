// The gradient of the whole loss against central differences, in double, for every parameter of every tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/network_fixture.hpp"

namespace vulpes::kernels {
namespace {

using Space = Kokkos::Serial;

struct Case {
  const char* name;
  double blend;
  bool per_branch;
  int blocks;
};

class GradientTest : public testing::TestWithParam<Case> {};

TEST_P(GradientTest, AgreesWithCentralDifferencesInEveryTensor) {
  const Case c = GetParam();
  test::LossProblem<Space, double> problem({8, 16, 8, c.blocks, 8, 11}, 16, /*seed=*/7);
  problem.blend = c.blend;
  problem.per_branch = c.per_branch;
  problem.run();
  problem.run_backward();

  for (const TensorSlice& t : problem.network.layout.tensors()) {
    double largest = 0, error = 0;
    for (std::size_t i = t.offset; i < t.offset + t.size(); ++i) {
      const double saved = problem.online(i), h = 1e-5;
      problem.online(i) = saved + h;
      const double up = problem.run();
      problem.online(i) = saved - h;
      const double down = problem.run();
      problem.online(i) = saved;
      const double numeric = (up - down) / (2 * h);
      largest = std::max(largest, std::abs(numeric));
      error = std::max(error, std::abs(numeric - problem.gradient(i)));
    }
    EXPECT_GT(largest, 0) << t.name << " has no gradient: the test shows nothing";
    EXPECT_LT(error, 1e-6 * largest) << t.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, GradientTest,
                         testing::Values(Case{"mse", 0, false, 1}, Case{"c51", 1, false, 1},
                                         Case{"blended", 0.3, false, 2}, Case{"per_branch", 0.6, true, 1},
                                         Case{"no_blocks", 1, true, 0}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vulpes::kernels
