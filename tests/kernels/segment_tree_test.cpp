#include "vulpes/kernels/segment_tree.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <map>
#include <numeric>

#include "tree_conflicts.hpp"
#include "vulpes/core/random.hpp"
#include "vulpes/kernels/formulas/stratified_draw.hpp"

namespace vulpes::kernels::test {
namespace {

std::uint32_t units(double priority) {
  bool saturated = false;
  return priority_units(priority, saturated);
}
std::vector<std::uint32_t> units(const std::vector<double>& priorities) {
  std::vector<std::uint32_t> u;
  for (double p : priorities) u.push_back(units(p));
  return u;
}

template <class Space>
struct SegmentTreeTest : testing::Test {
  Space space;
  /// A tree with these leaves, on the host.
  TreeCopy tree_of(const std::vector<std::uint32_t>& leaves, std::uint32_t capacity) {
    const SegmentTree<Space> tree(space, capacity);
    set_leaves(space, tree, leaves);
    return TreeCopy(space, tree);
  }
};
TYPED_TEST_SUITE(SegmentTreeTest, EachSpace);

TYPED_TEST(SegmentTreeTest, ADrawAtTheVeryTopNeverReturnsAnUnfilledLeaf) {
  for (const auto& p : std::vector<std::vector<double>>{{.1, .1, .1}, {.1, 1.3, 2.5}}) {
    const TreeCopy tree = this->tree_of(units(p), 4);
    EXPECT_EQ(tree.view.find(tree.total() - 1), 2u);
    for (std::uint32_t batch : {1u, 2u, 3u, 8192u}) {
      EXPECT_EQ(tree.view.find(stratified_target(batch - 1, 0xffffffffu, tree.total(), batch)), 2u);
    }
  }
}

TYPED_TEST(SegmentTreeTest, ZeroLeavesAreSkipped) {
  const TreeCopy tree = this->tree_of({0, 1, 0, 1}, 4);
  EXPECT_EQ(tree.view.find(0), 1u);
  EXPECT_EQ(tree.view.find(1), 3u);
}

TYPED_TEST(SegmentTreeTest, EachLeafIsFoundAsOftenAsItsUnits) {
  const auto counts = [&](const std::vector<std::uint32_t>& leaves, std::uint32_t capacity) {
    const TreeCopy tree = this->tree_of(leaves, capacity);
    std::vector<std::uint32_t> found(leaves.size());
    for (std::uint64_t u = 0; u < tree.total(); ++u) ++found[tree.view.find(u)];
    return found;
  };
  EXPECT_EQ(counts({10, 5, 2}, 3), (std::vector<std::uint32_t>{10, 5, 2}));
  EXPECT_EQ(counts({3, 2, 5, 4}, 4), (std::vector<std::uint32_t>{3, 2, 5, 4}));  // total 14, the last one 4 / 14
  EXPECT_EQ(this->tree_of({3, 2, 5, 4}, 4).total(), 14u);
  std::vector<std::uint32_t> many(1500);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i * 7 % 5;
  EXPECT_EQ(counts(many, 1500), many);
}

TYPED_TEST(SegmentTreeTest, ASmallLeafBesideALargeOneIsExact) {
  const SegmentTree<TypeParam> tree(this->space, 2);
  set_leaves<TypeParam>(this->space, tree, {1, 100000000});
  set_leaves<TypeParam>(this->space, tree, {1, 1});
  EXPECT_EQ(TreeCopy(this->space, tree).total(), 2u);  // float deltas: 0
}

TYPED_TEST(SegmentTreeTest, SearchEqualsALinearSearchForAnyCapacity) {
  EXPECT_TRUE(rc::check("prefix search", [&] {
    const auto capacity = *rc::gen::inRange<std::uint32_t>(1, 3000);
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const auto zeros = *rc::gen::inRange<std::uint32_t>(0, 8);
    std::vector<std::uint32_t> leaves(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      const auto w = random_words({seed, 0}, Purpose::test, 0, i);
      leaves[i] = w[0] % 8 < zeros ? 0u : (w[1] % 4 == 0 ? w[2] : w[2] % 3);
    }
    const TreeCopy tree = this->tree_of(leaves, capacity);
    RC_ASSERT(tree.fault().empty());
    const std::uint64_t total = std::accumulate(leaves.begin(), leaves.end(), std::uint64_t(0));
    RC_ASSERT(tree.total() == total);
    for (std::uint32_t k = 0; k < 64 && total > 0; ++k) {
      const std::uint64_t u = stratified_target(k, random_words({seed, 1}, Purpose::test, 0, k)[0], total, 64);
      std::uint32_t expected = 0;
      for (std::uint64_t prefix = leaves[0]; prefix <= u; prefix += leaves[expected]) ++expected;
      RC_ASSERT(tree.view.find(u) == expected);
      RC_ASSERT(leaves[expected] > 0u);
    }
  }));
}

TYPED_TEST(SegmentTreeTest, CapacitiesAroundPowersOfTheFanOut) {
  for (std::uint32_t capacity : {1u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 32767u, 32768u, 32769u}) {
    const SegmentTree<TypeParam> tree(this->space, capacity);
    update<TypeParam>(this->space, tree, to_device<TypeParam, std::uint32_t>(this->space, {capacity - 1, 0}),
                      to_device<TypeParam, std::uint32_t>(this->space, {7, 5}), nullptr);
    const TreeCopy copy(this->space, tree);
    EXPECT_EQ(copy.fault(), "") << capacity;
    EXPECT_EQ(copy.view.find(copy.total() - 1), capacity > 1 ? capacity - 1 : 0) << capacity;
    EXPECT_EQ(copy.total(), capacity > 1 ? 12u : 5u) << capacity;
  }
}

TYPED_TEST(SegmentTreeTest, TheLastOfTwoWritersWinsOneHundredTimes) {
  for (int repetition = 0; repetition < 100; ++repetition) {
    const SegmentTree<TypeParam> tree(this->space, 8);
    set_leaves(this->space, tree, std::vector<std::uint32_t>(8, 1));
    update<TypeParam>(this->space, tree, to_device<TypeParam, std::uint32_t>(this->space, {5, 5}),
                      to_device<TypeParam, std::uint32_t>(this->space, {2, 7}), nullptr);
    const TreeCopy copy(this->space, tree);
    ASSERT_EQ(copy.leaves[5], 7u);
    ASSERT_EQ(copy.total(), 14u);
    ASSERT_EQ(copy.fault(), "");
  }
}

TYPED_TEST(SegmentTreeTest, TheRootEqualsTheSumOfTheLeavesAfterAMillionUpdates) {
  constexpr int batches = 100, size = 10000;
  constexpr std::uint32_t capacity = 50000;
  const SegmentTree<TypeParam> tree(this->space, capacity);
  std::vector<std::uint32_t> rows(size), values(size);
  for (int b = 0; b < batches; ++b) {
    for (int k = 0; k < size; ++k) {
      const auto w = random_words({7, 0}, Purpose::test, b, k);
      rows[k] = w[0] % capacity;
      values[k] = w[1];
    }
    update<TypeParam>(this->space, tree, to_device(this->space, rows), to_device(this->space, values), nullptr);
    this->space.fence("vulpes::test::batch");
  }
  const TreeCopy copy(this->space, tree);
  EXPECT_EQ(copy.total(), std::accumulate(copy.leaves.begin(), copy.leaves.end(), std::uint64_t(0)));
  EXPECT_EQ(copy.fault(), "");
}

TYPED_TEST(SegmentTreeTest, ASkippedUpdateChangesNothingNorTheNextOne) {
  const SegmentTree<TypeParam> tree(this->space, 100);
  set_leaves(this->space, tree, std::vector<std::uint32_t>(100, 3));
  const auto rows = to_device<TypeParam, std::uint32_t>(this->space, {4, 70, 4});
  const auto values = to_device<TypeParam, std::uint32_t>(this->space, {9, 8, 6});
  const auto skip = to_device<TypeParam, std::uint32_t>(this->space, {1});
  update<TypeParam>(this->space, tree, rows, values, skip.data());
  const TreeCopy before(this->space, tree);
  EXPECT_EQ(before.total(), 300u);
  EXPECT_EQ(before.fault(), "");
  write(this->space, skip, 0, {0});
  update<TypeParam>(this->space, tree, rows, values, skip.data());
  const TreeCopy after(this->space, tree);
  EXPECT_EQ(after.leaves[4], 6u);
  EXPECT_EQ(after.leaves[70], 8u);
  EXPECT_EQ(after.total(), 300u + 3 + 5);
  EXPECT_EQ(after.fault(), "");
}

TYPED_TEST(SegmentTreeTest, RebuildGivesTheSumsOfTheUpdates) {
  for (std::uint32_t capacity : {1u, 40u, 1025u, 70000u}) {
    const SegmentTree<TypeParam> updated(this->space, capacity), rebuilt(this->space, capacity);
    std::vector<std::uint32_t> leaves(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) leaves[i] = random_words({5, 0}, Purpose::test, 0, i)[0];
    set_leaves(this->space, updated, leaves);
    write(this->space, rebuilt.leaves, 0, leaves);
    rebuild(this->space, rebuilt);
    const TreeCopy a(this->space, updated), b(this->space, rebuilt);
    EXPECT_EQ(a.sums, b.sums) << capacity;
    EXPECT_EQ(b.fault(), "") << capacity;
  }
}

TYPED_TEST(SegmentTreeTest, LargestLeaf) {
  const Kokkos::View<std::uint32_t, MemoryOf<TypeParam>> largest("vulpes::test::largest");
  const auto of = [&](std::uint32_t capacity, const std::vector<std::uint32_t>& leaves) {
    const SegmentTree<TypeParam> tree(this->space, capacity);
    set_leaves(this->space, tree, leaves);
    largest_leaf(this->space, tree, largest);
    return to_host(this->space, largest)[0];
  };
  EXPECT_EQ(of(100, {}), 0u);
  EXPECT_EQ(of(3, {0, 4, 2}), 4u);
  EXPECT_EQ(of(1, {0xffffffffu}), 0xffffffffu);
  std::vector<std::uint32_t> many(5000, 17);
  many[4999] = 18;
  EXPECT_EQ(of(5000, many), 18u);
}

TEST(SegmentTree, NoRowsIsAnError) {
  EXPECT_THROW(SegmentTree<Kokkos::DefaultExecutionSpace>({}, 0), std::runtime_error);
}

/// All back ends go through the same 1,000 batches; every node and leaf is compared after each.
void check_conflicting_updates(int count) {
  constexpr int rounds = 1000;
  constexpr std::uint32_t capacity = 33000;  // four levels
  std::map<std::string, std::unique_ptr<TreeCopy>> trees;
#define VULPES_RUN_CONFLICTS(S)                                                                        \
  EXPECT_EQ(first_fault<S>(                                                                            \
                count, capacity, rounds,                                                               \
                [](const S& space, const SegmentTree<S>& tree, const auto& rows, const auto& values) { \
                  update<S>(space, tree, rows, values, nullptr);                                       \
                },                                                                                     \
                &trees[S::name()]),                                                                    \
            "")                                                                                        \
      << S::name();
  VULPES_FOR_EACH_SPACE(VULPES_RUN_CONFLICTS)
#undef VULPES_RUN_CONFLICTS
  for (const auto& [name, tree] : trees) {
    ASSERT_TRUE(tree) << name;
    EXPECT_EQ(tree->leaves, trees.begin()->second->leaves) << name;
    EXPECT_EQ(tree->sums, trees.begin()->second->sums) << name;
  }
}

TEST(SegmentTree, EightThousandConflictingUpdatesAreExactAndAlikeEverywhere) { check_conflicting_updates(8192); }
TEST(SegmentTree, AHundredThousandConflictingUpdatesAreExactAndAlikeEverywhere) { check_conflicting_updates(100000); }

__extension__ typedef unsigned __int128 Wide;
std::uint64_t exact_target(std::uint32_t k, std::uint32_t r, std::uint64_t total, std::uint32_t batch) {
  const Wide position = (Wide(k) << 32) + r;  // below 2^64, so the product fits
  return static_cast<std::uint64_t>(position * total / (Wide(batch) << 32));
}

TEST(StratifiedDraw, StaysInRangeAtTheEndsOfTotals) {
  for (std::uint32_t batch : {1u, 2u, 3u, 256u, 8192u, 1000000u, 0xffffffffu}) {
    for (std::uint64_t total : {std::uint64_t(1), std::uint64_t(batch) - (batch > 1), std::uint64_t(1) << 63,
                                (std::uint64_t(1) << 63) + 1, ~std::uint64_t(0)}) {
      for (std::uint32_t k : {0u, batch / 2, batch - 1}) {
        for (std::uint32_t r : {0u, 1u, 0x80000000u, 0xffffffffu}) {
          const std::uint64_t u = stratified_target(k, r, total, batch);
          EXPECT_LT(u, total);
          EXPECT_EQ(u, exact_target(k, r, total, batch)) << k << ' ' << r << ' ' << total << ' ' << batch;
        }
      }
    }
  }
}

RC_GTEST_PROP(StratifiedDraw, EqualsTheQuotientIn128Bits, ()) {
  const auto batch = *rc::gen::suchThat(rc::gen::arbitrary<std::uint32_t>(), [](std::uint32_t b) { return b > 0; });
  const auto k = *rc::gen::map(rc::gen::arbitrary<std::uint32_t>(), [=](std::uint32_t x) { return x % batch; });
  const auto r = *rc::gen::arbitrary<std::uint32_t>();
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  for (std::uint32_t i = 0; i < 1000; ++i) {  // RapidCheck's integers are mostly small; these are not
    const auto w = random_words({seed, 0}, Purpose::test, 0, i);
    const std::uint32_t b = w[0] >> (w[1] % 32) | 1u;
    const std::uint64_t total = (std::uint64_t(w[2]) << 32 | w[3]) >> (w[1] / 32 % 64) | 1u;
    const std::uint64_t u = stratified_target(k % b, r ^ w[3], total, b);
    RC_ASSERT(u == exact_target(k % b, r ^ w[3], total, b));
    RC_ASSERT(u < total);
  }
  RC_ASSERT(stratified_target(k, r, ~std::uint64_t(0) - r, batch) == exact_target(k, r, ~std::uint64_t(0) - r, batch));
}

TEST(Priority, RoundsUpToOneUnitAndSaturates) {
  bool saturated = true;
  EXPECT_EQ(priority_units(1.0, saturated), 1u << 20);
  EXPECT_FALSE(saturated);
  EXPECT_EQ(priority_units(1e-9, saturated), 1u);
  EXPECT_FALSE(saturated);
  EXPECT_EQ(priority_units(0.0, saturated), 1u);
  EXPECT_EQ(priority_units(4095.0, saturated), 4095u << 20);
  EXPECT_FALSE(saturated);
  EXPECT_EQ(priority_units(4096.0, saturated), 0xffffffffu);
  EXPECT_TRUE(saturated);
  EXPECT_EQ(priority_units(std::numeric_limits<double>::infinity(), saturated), 0xffffffffu);
  EXPECT_TRUE(saturated);
}

}  // namespace
}  // namespace vulpes::kernels::test
