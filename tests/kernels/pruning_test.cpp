// Magnitude pruning: the schedule by value, exact thresholds, the mask.
#include "vulpes/kernels/pruning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace vulpes::kernels {
namespace {

TEST(Pruning, CubicSchedule) {
  const PruningRules rules{0.8, 100, 300};
  EXPECT_EQ(cubic_sparsity(rules, 99), 0.0);
  EXPECT_EQ(cubic_sparsity(rules, 100), 0.0);
  EXPECT_DOUBLE_EQ(cubic_sparsity(rules, 200), 0.8 * (1 - 0.125));
  EXPECT_DOUBLE_EQ(cubic_sparsity(rules, 300), 0.8);
  EXPECT_DOUBLE_EQ(cubic_sparsity(rules, 1000), 0.8);
  EXPECT_DOUBLE_EQ(cubic_sparsity({0.5, 10, 10}, 10), 0.5);  // no time in between
}

template <class Space>
class MagnitudePruning : public testing::Test {
 protected:
  Space space;
  Network network{{16, 24, 16, 1, 8, 11}};
  OptimiserBuffers<Space, float> b;
  StepStateRef<Space> state{"state"};
  Pruning<Space> pruning{space, network.layout};

  void SetUp() override {
    for (auto* v : {&b.parameters, &b.target, &b.gradient, &b.first_moment, &b.second_moment}) {
      *v = Vector<float, Space>("buffer", network.layout.size());
    }
    b.mask = Vector<std::uint32_t, Space>("mask", network.layout.size() / mask_bits);
    for (const TensorSlice& t : network.layout.tensors()) {
      for (std::size_t i = 0; i < t.size(); ++i) {
        // Magnitudes over many binades, both signs.
        const float x = std::sin(static_cast<float>(7 * i + t.offset)) * std::exp(static_cast<float>(i % 23) - 11.0f);
        b.parameters(t.offset + i) = x;
        b.target(t.offset + i) = b.first_moment(t.offset + i) = b.second_moment(t.offset + i) = 1.0f;
      }
    }
  }
  void prune_to(double sparsity) { prune(space, pruning, {sparsity, 0, 0}, b, state); }
};
#define VULPES_AND_SPACE(S) , S
template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
using HostSpaces = SpaceList < void VULPES_FOR_EACH_HOST_SPACE(VULPES_AND_SPACE)
> ::Types;
TYPED_TEST_SUITE(MagnitudePruning, HostSpaces);

TYPED_TEST(MagnitudePruning, PrunesTheSmallestOfEachMatrixExactly) {
  for (const double sparsity : {0.1, 0.5, 0.93}) {
    this->SetUp();
    const std::vector<float> before(this->b.parameters.data(),
                                    this->b.parameters.data() + this->b.parameters.extent(0));
    this->prune_to(sparsity);
    for (const TensorSlice& t : this->network.layout.tensors()) {
      const auto wanted = static_cast<std::size_t>(sparsity * static_cast<double>(t.size()));
      std::vector<float> magnitudes;
      for (std::size_t i = 0; i < t.size(); ++i) magnitudes.push_back(std::abs(before[t.offset + i]));
      std::sort(magnitudes.begin(), magnitudes.end());
      std::size_t pruned = 0;
      for (std::size_t i = 0; i < t.size(); ++i) {
        const std::size_t j = t.offset + i;
        const bool masked = is_pruned(this->b.mask.data(), static_cast<std::int64_t>(j));
        pruned += masked;
        EXPECT_EQ(this->b.parameters(j), masked ? 0.0f : before[j]);
        EXPECT_EQ(this->b.target(j), masked ? 0.0f : 1.0f);
        EXPECT_EQ(this->b.first_moment(j), masked ? 0.0f : 1.0f);
        if (masked) {
          EXPECT_LE(std::abs(before[j]), magnitudes[wanted - 1]);
        }
      }
      EXPECT_EQ(pruned, t.is_weight ? wanted : 0u) << t.name << " at " << sparsity;
    }
  }
}

TYPED_TEST(MagnitudePruning, GrowsAndNeverRevives) {
  this->prune_to(0.3);
  const std::vector<std::uint32_t> first(this->b.mask.data(), this->b.mask.data() + this->b.mask.extent(0));
  this->prune_to(0.6);
  for (std::size_t w = 0; w < first.size(); ++w) EXPECT_EQ(this->b.mask(w) & first[w], first[w]);
}

TYPED_TEST(MagnitudePruning, ARefusedStepAndNoSparsityLeaveTheMaskAlone) {
  this->prune_to(0.0);
  for (std::size_t w = 0; w < this->b.mask.extent(0); ++w) EXPECT_EQ(this->b.mask(w), 0u);
  this->state().next.skip = 1;
  this->prune_to(0.5);
  for (std::size_t w = 0; w < this->b.mask.extent(0); ++w) EXPECT_EQ(this->b.mask(w), 0u);
}

TEST(Pruning, SerialAndOpenMPAgreeBitForBit) {
#if defined(KOKKOS_ENABLE_OPENMP)
  class A : public MagnitudePruning<Kokkos::Serial> {
   public:
    void TestBody() override {}
    void run() { SetUp(), prune_to(0.7); }
    auto mask() const { return std::vector<std::uint32_t>(b.mask.data(), b.mask.data() + b.mask.extent(0)); }
  } a;
  class B : public MagnitudePruning<Kokkos::OpenMP> {
   public:
    void TestBody() override {}
    void run() { SetUp(), prune_to(0.7); }
    auto mask() const { return std::vector<std::uint32_t>(b.mask.data(), b.mask.data() + b.mask.extent(0)); }
  } b;
  a.run();
  b.run();
  EXPECT_EQ(a.mask(), b.mask());
#else
  GTEST_SKIP() << "one host space only";
#endif
}

}  // namespace
}  // namespace vulpes::kernels
