// Cases of cases.md, "Spectral norm, averaging, optimiser", by value.
#include "vulpes/kernels/optimise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "vulpes/kernels/formulas/polyak.hpp"
#include "vulpes/kernels/metrics.hpp"
#include "vulpes/kernels/spectral.hpp"

namespace vulpes::kernels {
namespace {

/// A layout of one weight matrix [1, n] and its buffers.
template <class Space, class Real>
struct Problem {
  Space space;
  ParameterLayout layout;
  OptimiserWork<Space> work;
  OptimiserBuffers<Space, Real> b;
  StepStateRef<Space> state{"state"};
  OptimiserRules rules;
  LossBuffers<Space, Real> loss;
  Matrix<double, Space> ring{"ring", 4, step_outputs};

  explicit Problem(int n, bool is_weight = true) : layout(make(n, is_weight)), work(space, layout) {
    for (auto* v : {&b.parameters, &b.target, &b.gradient, &b.first_moment, &b.second_moment}) {
      *v = Vector<Real, Space>("buffer", layout.size());
    }
    loss = LossBuffers<Space, Real>(space, {8, 8, 8, 0, 8, 2}, 16, "loss");
    rules.rate = Schedule::constant(0.1);
    rules.clip_norm = 1e30;
  }
  static ParameterLayout make(int n, bool is_weight) {
    ParameterLayout l;
    l.add("w", 1, n, is_weight);
    return l;
  }
  void step() {
    gradient_squares(space, work, b);
    optimise(space, work, rules, b, state);
    finish_step(space, loss, work, state, ring);
  }
};

using Space = Kokkos::DefaultHostExecutionSpace;

// Adam: g = 1, lr = .1, 10 steps -> -1.0000 (a frozen step count gives -1.7481).
TEST(AdamW, TenUnitGradients) {
  Problem<Space, float> p(1);
  p.b.gradient(0) = 1;
  p.rules.epsilon = 1e-8;
  for (int i = 0; i < 10; ++i) p.step();
  EXPECT_NEAR(p.b.parameters(0), -1.0, 1e-5);
  EXPECT_EQ(p.state().now.adam_t, 10u);
  EXPECT_EQ(p.state().now.iteration, 10u);
}

// g = eps = 1e-8, first Adam step: change / lr = .5.
TEST(AdamW, EpsilonOutsideTheRoot) {
  Problem<Space, double> p(1);
  p.b.gradient(0) = 1e-8;
  p.rules.epsilon = 1e-8;
  p.step();
  EXPECT_NEAR(-p.b.parameters(0) / 0.1, 0.5, 1e-9);
}

// p = 1, g = 0, lr = wd = .1 -> .99 (decoupled decay); biases do not decay.
TEST(AdamW, DecayIsDecoupledAndOfWeightsOnly) {
  for (const bool is_weight : {true, false}) {
    Problem<Space, double> p(1, is_weight);
    p.b.parameters(0) = 1;
    p.rules.weight_decay = 0.1;
    p.step();
    EXPECT_NEAR(p.b.parameters(0), is_weight ? 0.99 : 1.0, 1e-12);
  }
}

// lr = .1 / t by schedule (knots at iterations 0, 1, 2): the schedule is read from the counter in device memory.
TEST(AdamW, ScheduleFollowsTheDeviceCounter) {
  Problem<Space, double> p(1);
  p.rules.rate.knots = 3;
  for (int i = 0; i < 3; ++i) {
    p.rules.rate.at[i] = i;
    p.rules.rate.value[i] = 0.1 / (i + 1);
  }
  p.rules.epsilon = 1e-12;
  p.b.gradient(0) = 1;  // with a constant gradient Adam's step is the rate itself
  for (int i = 0; i < 3; ++i) p.step();
  EXPECT_NEAR(p.b.parameters(0), -0.18333, 1e-5);
}

// 100 gradients of 1e20, maximum norm 1 -> each .1 (squares overflow float).
TEST(Clip, HugeGradientsAreScaledNotLost) {
  Problem<Space, float> p(100);
  for (int i = 0; i < 100; ++i) p.b.gradient(i) = 1e20f;
  p.rules.clip_norm = 1;
  p.rules.beta1 = 0;  // the first moment is then the clipped gradient
  p.step();
  for (int i = 0; i < 100; ++i) EXPECT_NEAR(p.b.first_moment(i), 0.1, 1e-6);
  EXPECT_NEAR(p.state().now.gradient_norm / 1e21, 1, 1e-6);
}

// One NaN gradient: parameters, moments and step unchanged, skipped = 1; the iteration advances.
TEST(Skip, OneNaNOrInfinityLeavesEverythingAsItWas) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Problem<Space, float> p(9000);  // several chunks
    for (int i = 0; i < 9000; ++i) {
      p.b.parameters(i) = 0.5f;
      p.b.gradient(i) = 0.1f;
    }
    p.step();
    const float parameter = p.b.parameters(17), moment = p.b.first_moment(17), second = p.b.second_moment(17),
                target = p.b.target(17);
    p.b.gradient(8000) = bad;
    p.step();
    EXPECT_EQ(p.b.parameters(17), parameter);
    EXPECT_EQ(p.b.first_moment(17), moment);
    EXPECT_EQ(p.b.second_moment(17), second);
    EXPECT_EQ(p.b.target(17), target);
    EXPECT_EQ(p.state().now.adam_t, 1u);
    EXPECT_EQ(p.state().now.iteration, 2u);
    EXPECT_EQ(p.state().now.skipped, 1u);
    EXPECT_EQ(p.ring(1, skip_out), 1.0);
    p.b.gradient(8000) = 0.1f;
    p.step();
    EXPECT_NE(p.b.parameters(17), parameter);
    EXPECT_EQ(p.state().now.adam_t, 2u);
  }
}

TEST(Polyak, MovesTheTargetByTau) {
  EXPECT_DOUBLE_EQ(polyak(1.0, 3.0, 0.25), 1.5);
  Problem<Space, double> p(1);
  p.b.parameters(0) = 2;
  p.rules.rate = Schedule::constant(0);
  p.rules.tau = 0.01;
  p.step();
  EXPECT_NEAR(p.b.target(0), 0.02, 1e-15);
}

TEST(GradientNorm, IsTheSameOnSerialAndOpenMP) {
#if defined(KOKKOS_ENABLE_OPENMP)
  Problem<Kokkos::Serial, float> a(10001);
  Problem<Kokkos::OpenMP, float> b(10001);
  for (int i = 0; i < 10001; ++i) a.b.gradient(i) = b.b.gradient(i) = std::sin(static_cast<float>(i));
  a.step();
  b.step();
  EXPECT_EQ(a.state().now.gradient_norm, b.state().now.gradient_norm);
#else
  GTEST_SKIP() << "one host space only";
#endif
}

/// A network whose first trunk matrix is set by the test; the others are zero.
struct Spectral {
  Space space;
  Network network{{8, 8, 8, 0, 8, 2}};
  Vector<float, Space> parameters{"parameters", network.layout.size()};
  StepStateRef<Space> state{"state"};
  float& w(int i, int j) { return parameters(network.layout[network.trunk_weight[0]].offset + i * 8 + j); }
};

// First use already has a sensible sigma: W = diag(3,1) -> diag(1,.333) within 1e-3 at c = 1. W = 0 stays 0.
TEST(SpectralNorm, DiagonalMatrixAtFirstUseAndZeroMatrices) {
  Spectral s;
  s.w(0, 0) = 3;
  s.w(1, 1) = 1;
  SpectralNorm<Space> norm(s.space, s.network, 1.0, 1.0);
  norm.start(s.space, s.parameters);
  spectral_norm(s.space, norm, s.parameters, s.state);
  EXPECT_NEAR(s.w(0, 0), 1, 1e-3);
  EXPECT_NEAR(s.w(1, 1), 1.0 / 3, 1e-3);
  EXPECT_NEAR(norm.sigma(0), 3, 1e-3);
  const TensorSlice& zero = s.network.layout[s.network.trunk_weight[1]];
  for (std::size_t i = 0; i < zero.size(); ++i) EXPECT_EQ(s.parameters(zero.offset + i), 0.0f);
  for (std::size_t i = 0; i < norm.vectors.extent(0); ++i) ASSERT_TRUE(std::isfinite(norm.vectors(i)));
  // A matrix that was zero is bounded once it is not.
  s.parameters(zero.offset) = 7;
  for (int i = 0; i < 2; ++i) {
    spectral_norm(s.space, norm, s.parameters, s.state);
    ++s.state().now.adam_t;
  }
  EXPECT_NEAR(s.parameters(zero.offset), 1, 1e-3);
}

TEST(SpectralNorm, BoundsRandomMatricesAndLeavesSmallOnesAlone) {
  Spectral s;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) s.w(i, j) = std::sin(static_cast<float>(3 * i + 7 * j));
  }
  SpectralNorm<Space> norm(s.space, s.network, 0.5, 0);
  norm.start(s.space, s.parameters);
  for (int i = 0; i < 20; ++i) {
    spectral_norm(s.space, norm, s.parameters, s.state);
    ++s.state().now.adam_t;
  }
  EXPECT_NEAR(norm.sigma(0), 0.5, 1e-3);
  const float before = s.w(2, 3);
  SpectralNorm<Space> loose(s.space, s.network, 2.0, 0);
  loose.start(s.space, s.parameters);
  spectral_norm(s.space, loose, s.parameters, s.state);
  EXPECT_EQ(s.w(2, 3), before);
}

// After a refused step adam_t stands still, and so do the vectors: the same step again gives the same bits.
TEST(SpectralNorm, ARefusedStepLeavesTheVectorsAsTheyWere) {
  Spectral s;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) s.w(i, j) = std::cos(static_cast<float>(5 * i + j));
  }
  SpectralNorm<Space> norm(s.space, s.network, 100, 0);
  norm.start(s.space, s.parameters);
  for (std::uint64_t t : {6u, 7u}) {
    s.state().now.adam_t = t;
    const int read = static_cast<int>(t & 1) * norm.half, written = norm.half - read;
    const std::vector<float> before(norm.vectors.data() + read, norm.vectors.data() + read + norm.half);
    spectral_norm(s.space, norm, s.parameters, s.state);
    const std::vector<float> first(norm.vectors.data() + written, norm.vectors.data() + written + norm.half);
    spectral_norm(s.space, norm, s.parameters, s.state);
    for (int i = 0; i < norm.half; ++i) {
      ASSERT_EQ(norm.vectors(read + i), before[i]);
      ASSERT_EQ(norm.vectors(written + i), first[i]);
    }
  }
  s.state().now.stopped = 1;
  const std::vector<float> frozen(norm.vectors.data(), norm.vectors.data() + 2 * norm.half);
  s.state().now.adam_t = 8;
  spectral_norm(s.space, norm, s.parameters, s.state);
  for (int i = 0; i < 2 * norm.half; ++i) ASSERT_EQ(norm.vectors(i), frozen[i]);
}

TEST(SpectralNorm, OffCostsNoLaunch) {
  Spectral s;
  const SpectralNorm<Space> norm(s.space, s.network, 0, 0);
  EXPECT_FALSE(norm.enabled());
  static int launches = 0;
  launches = 0;
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(
      [](const char*, std::uint32_t, std::uint64_t*) { ++launches; });
  spectral_norm(s.space, norm, s.parameters, s.state);
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr);
  EXPECT_EQ(launches, 0);
}

}  // namespace
}  // namespace vulpes::kernels
