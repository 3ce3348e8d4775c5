#include "vulpes/core/schedule.hpp"

#include <gtest/gtest.h>

namespace vulpes {
namespace {

TEST(Schedule, HoldsItsEndsAndInterpolatesBetween) {
  const Schedule s = Schedule::linear(1.0, 0.2, 8);
  EXPECT_DOUBLE_EQ(s(-5), 1.0);
  EXPECT_DOUBLE_EQ(s(0), 1.0);
  EXPECT_DOUBLE_EQ(s(4), 0.6);
  EXPECT_DOUBLE_EQ(s(8), 0.2);
  EXPECT_DOUBLE_EQ(s(1000000), 0.2);
  EXPECT_DOUBLE_EQ(Schedule::linear(1, 2, 0)(0), 2);
  EXPECT_DOUBLE_EQ(Schedule::constant(3)(17), 3);
  const Schedule later = Schedule::linear(0, 1, 4, 10);
  EXPECT_DOUBLE_EQ(later(10), 0);
  EXPECT_DOUBLE_EQ(later(13), 0.75);
  EXPECT_DOUBLE_EQ(later(14), 1);
  const Schedule at_once = Schedule::linear(0, 1, 0, 10);
  EXPECT_DOUBLE_EQ(at_once(9), 0);
  EXPECT_DOUBLE_EQ(at_once(10), 1);
}

TEST(Schedule, RampThenLinear) {
  const Schedule s = Schedule::ramp_then_linear(1.0, 0.1, 4, 13);
  EXPECT_DOUBLE_EQ(s(0), 0.25);
  EXPECT_DOUBLE_EQ(s(1), 0.5);
  EXPECT_DOUBLE_EQ(s(3), 1.0);
  EXPECT_DOUBLE_EQ(s(8), 0.55);
  EXPECT_DOUBLE_EQ(s(13), 0.1);
  EXPECT_DOUBLE_EQ(Schedule::ramp_then_linear(1.0, 0.1, 0, 10)(0), 1.0);
  EXPECT_DOUBLE_EQ(Schedule::ramp_then_linear(1.0, 0.1, 1, 10)(0), 1.0);
  EXPECT_DOUBLE_EQ(Schedule::ramp_then_linear(1.0, 0.1, 20, 10)(40), 1.0);  // never reaches its decline
}

}  // namespace
}  // namespace vulpes
