// The concurrency check of segment_tree_test.cpp must see the two faults that it is there for.
#include <gmock/gmock.h>

#include "tree_conflicts.hpp"

namespace vulpes::kernels::test {
namespace {

/// `update` with plain additions.
struct PlainAdditions {
  TreeView tree;
  const std::uint32_t *rows, *units;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    if (rows[k] == no_row || !tree.take(rows[k], k)) return;
    const std::uint64_t delta = tree.write_leaf(rows[k], units[k]);
    std::uint64_t node = rows[k];
    for (int level = 0; level < tree.levels; ++level) {
      node /= tree_fan_out;
      tree.sums[level][node] += delta;
    }
  }
};

/// `update` with atomic additions in which every position writes, in whatever order the threads come.
struct AllWrite {
  TreeView tree;
  const std::uint32_t *rows, *units;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    if (rows[k] == no_row) return;
    const std::uint32_t old = Kokkos::atomic_exchange(&tree.leaves[rows[k]], units[k]);
    const std::uint64_t delta = std::uint64_t(units[k]) - old;
    std::uint64_t node = rows[k];
    for (int level = 0; level < tree.levels; ++level) {
      node /= tree_fan_out;
      Kokkos::atomic_add(&tree.sums[level][node], delta);
    }
  }
};

struct Propose {
  TreeView tree;
  const std::uint32_t* rows;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    if (rows[k] != no_row) tree.propose(rows[k], k);
  }
};

using Space = DefaultSpace;
constexpr int rounds = 1000;

template <class Mutant>
std::string fault_of_mutant() {
  return first_fault<Space>(
      8192, 33000, rounds, [](const Space& space, const SegmentTree<Space>& tree, const auto& rows, const auto& units) {
        const auto count = static_cast<std::int64_t>(rows.extent(0));
        if (std::is_same_v<Mutant, PlainAdditions>) {
          Kokkos::parallel_for("vulpes::test::propose", range(space, count), Propose{tree.view, rows.data()});
        }
        Kokkos::parallel_for("vulpes::test::mutant", range(space, count), Mutant{tree.view, rows.data(), units.data()});
      });
}

TEST(TreeMutant, PlainAdditionsFailTheConcurrencyCheck) {
  if (Space().concurrency() < 2) GTEST_SKIP() << "needs two threads";
  const std::string fault = fault_of_mutant<PlainAdditions>();
  EXPECT_THAT(fault, testing::HasSubstr("children's sum"));
  RecordProperty("fault", fault);
}

TEST(TreeMutant, UndecidedWritersFailTheConcurrencyCheck) {
  if (Space().concurrency() < 2) GTEST_SKIP() << "needs two threads";
  const std::string fault = fault_of_mutant<AllWrite>();
  EXPECT_THAT(fault, testing::HasSubstr("the last value written"));
  RecordProperty("fault", fault);
}

/// The same composition without a fault passes, so it is the fault that fails.
struct Faultless {
  TreeView tree;
  const std::uint32_t *rows, *units;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    if (rows[k] != no_row && tree.take(rows[k], k)) tree.set(rows[k], units[k]);
  }
};
TEST(TreeMutant, TheSameWithoutAFaultPasses) {
  EXPECT_EQ(first_fault<Space>(
                8192, 33000, 100,
                [](const Space& space, const SegmentTree<Space>& tree, const auto& rows, const auto& units) {
                  const auto count = static_cast<std::int64_t>(rows.extent(0));
                  Kokkos::parallel_for("vulpes::test::propose", range(space, count), Propose{tree.view, rows.data()});
                  Kokkos::parallel_for("vulpes::test::faultless", range(space, count),
                                       Faultless{tree.view, rows.data(), units.data()});
                }),
            "");
}

}  // namespace
}  // namespace vulpes::kernels::test
