#include "vulpes/core/math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "vulpes/core/sums.hpp"

namespace vulpes {
namespace {

using F = Pack<float>;

TEST(Math, ExponentialIsAccurateAndEqualInPacks) {
  double worst = 0;
  for (int i = -8600; i <= 8600; ++i) {
    // volatile: else the compiler may fold the argument of the exact value with another rounding.
    volatile float argument = static_cast<float>(i) * 0.01f + 0.0003f;
    const float x = argument;
    const float y = exp_float(x);
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(y - exact) / exact);
    const F packed = exp_float(F(x));
    for (int l = 0; l < F::size; ++l) ASSERT_EQ(packed[l], y) << x;
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(exp_float(0.0f), 1.0f);
  EXPECT_EQ(exp_float(-100.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_float(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, LogarithmIsAccurateAndEqualInPacks) {
  double worst = 0;
  for (int i = 1; i < 20000; ++i) {
    const float x = std::ldexp(1.0f + static_cast<float>(i % 997) / 997.0f, i % 120 - 60);
    const float y = log_float(x);
    const double exact = std::log(static_cast<double>(x));
    worst = std::max(worst, std::abs(y - exact) / std::max(1.0, std::abs(exact)));
    const F packed = log_float(F(x));
    for (int l = 0; l < F::size; ++l) ASSERT_EQ(packed[l], y) << x;
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(log_float(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(log_float(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, SelectAndLanes) {
  F a(1.0f), b(2.0f);
  set_lane(a, 3, 5.0f);
  const F c = select(a < b, a, b);
  EXPECT_EQ(lane(c, 0), 1.0f);
  EXPECT_EQ(lane(c, 3), 2.0f);
  EXPECT_EQ(larger(a, b)[3], 5.0f);
  EXPECT_EQ(smaller(2.0, 3.0), 2.0);
}

TEST(Math, FixedSumIsExactOnIntegersForEveryLength) {
  for (int n = 0; n < 70; ++n) {
    EXPECT_EQ(fixed_sum<double>(n, [](std::int64_t i) { return static_cast<double>(i + 1); }), n * (n + 1) / 2);
  }
}

}  // namespace
}  // namespace vulpes
