#include "vulpes/core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace vulpes {
namespace {

TEST(Random, IsAFunctionOfItsCountersAndOfEachOfThem) {
  const RandomKey key{1, 1};
  const auto base = random_words(key, Purpose::explore, 5, 7);
  EXPECT_EQ(base, random_words(key, Purpose::explore, 5, 7));
  EXPECT_NE(base, random_words({2, 1}, Purpose::explore, 5, 7));
  EXPECT_NE(base, random_words({1, 2}, Purpose::explore, 5, 7));
  EXPECT_NE(base, random_words(key, Purpose::explore_action, 5, 7));
  EXPECT_NE(base, random_words(key, Purpose::explore, 6, 7));
  EXPECT_NE(base, random_words(key, Purpose::explore, 5, 8));
  EXPECT_NE(base, random_words(key, Purpose::explore, 5, 7, 1));
  EXPECT_NE(base, random_words(key, Purpose::explore, 5 + (1ULL << 40), 7));
}

TEST(Random, Philox4x32KnownAnswer) {
  // Random123's published vector for Philox4x32-10 with counter and key zero.
  const r123::Philox4x32::ctr_type counter = {{0, 0, 0, 0}};
  const r123::Philox4x32::key_type key = {{0, 0}};
  const auto words = r123::Philox4x32()(counter, key);
  EXPECT_EQ(words[0], 0x6627e8d5u);
  EXPECT_EQ(words[1], 0xe169c58du);
  EXPECT_EQ(words[2], 0xbc57ac4cu);
  EXPECT_EQ(words[3], 0x9b00dbd8u);
}

TEST(Random, UniformAndNormalHaveTheirMomentsAndStayInRange) {
  const RandomKey key{3, 1};
  const int n = 200000;
  double sum = 0, squares = 0, uniform = 0;
  for (int i = 0; i < n; ++i) {
    const auto w = random_words(key, Purpose::test, 0, i);
    const NormalPair z = normal_pair(w);
    sum += z.first + z.second;
    squares += z.first * z.first + z.second * z.second;
    const float u = uniform_float(w[0]);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    uniform += u;
    ASSERT_LT(uniform_below(w[1], 9), 9u);
  }
  EXPECT_NEAR(sum / (2 * n), 0, 4 / std::sqrt(2.0 * n));
  EXPECT_NEAR(squares / (2 * n), 1, 4 * std::sqrt(2.0 / (2 * n)));
  EXPECT_NEAR(uniform / n, 0.5, 4 * std::sqrt(1.0 / 12 / n));
  EXPECT_TRUE(std::isfinite(std::log(uniform_double(0, 0))));
  EXPECT_LT(uniform_double(0xffffffffu, 0xffffffffu), 1.0);
}

}  // namespace
}  // namespace vulpes
