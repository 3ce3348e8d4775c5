// The concurrency check of segment_tree_test.cpp must see the two faults that it is there for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tree_conflicts.hpp"

namespace vulpes::kernels::test {
namespace {

/// `update` with plain additions: load, add, store. On a busy host the threads of a launch may run one after the other,
/// and then nothing is lost; so a thread now and then gives up its core between the load and the store.
struct PlainAdditions {
  TreeView tree;
  const std::uint32_t *rows, *units;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    if (rows[k] == no_row || !tree.take(rows[k], k)) return;
    const std::uint64_t delta = tree.write_leaf(rows[k], units[k]);
    std::uint64_t node = rows[k];
    for (int level = 0; level < tree.levels; ++level) {
      node /= tree_fan_out;
      const std::uint64_t old = Kokkos::atomic_load(&tree.sums[level][node]);
      KOKKOS_IF_ON_HOST((if (k % 64 == 0) std::this_thread::yield();))
      Kokkos::atomic_store(&tree.sums[level][node], old + delta);
    }
  }
};

/// `update` with atomic additions in which every position writes, in an order that a schedule may well take: last to
/// first.
struct AllWrite {
  TreeView tree;
  const std::uint32_t *rows, *units;
  std::int64_t count;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t k = count - 1 - i;
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

/// The same composition without a fault, so that it is the fault that fails.
struct Faultless {
  TreeView tree;
  const std::uint32_t *rows, *units;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    if (rows[k] != no_row && tree.take(rows[k], k)) tree.set(rows[k], units[k]);
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

/// The check's first fault of a tree that is updated by `make_writer(tree, rows, units, count)` after the writers are
/// decided.
template <class MakeWriter>
std::string fault_of(bool decide, const MakeWriter& make_writer) {
  return first_fault<Space>(
      8192, 33000, rounds,
      [&](const Space& space, const SegmentTree<Space>& tree, const auto& rows, const auto& units) {
        const auto count = static_cast<std::int64_t>(rows.extent(0));
        if (decide) Kokkos::parallel_for("vulpes::test::propose", range(space, count), Propose{tree.view, rows.data()});
        Kokkos::parallel_for("vulpes::test::write", range(space, count),
                             make_writer(tree.view, rows.data(), units.data(), count));
      });
}

TEST(TreeMutant, PlainAdditionsFailTheConcurrencyCheck) {
  if (Space().concurrency() < 2) GTEST_SKIP() << "needs two threads";
  EXPECT_THAT(fault_of(true,
                       [](TreeView tree, const std::uint32_t* rows, const std::uint32_t* units, std::int64_t) {
                         return PlainAdditions{tree, rows, units};
                       }),
              testing::HasSubstr("children's sum"));
}

TEST(TreeMutant, UndecidedWritersFailTheConcurrencyCheck) {
  EXPECT_THAT(fault_of(false,
                       [](TreeView tree, const std::uint32_t* rows, const std::uint32_t* units, std::int64_t count) {
                         return AllWrite{tree, rows, units, count};
                       }),
              testing::HasSubstr("the last value written"));
}

TEST(TreeMutant, TheSameWithoutAFaultPasses) {
  EXPECT_EQ(fault_of(true,
                     [](TreeView tree, const std::uint32_t* rows, const std::uint32_t* units, std::int64_t) {
                       return Faultless{tree, rows, units};
                     }),
            "");
}

}  // namespace
}  // namespace vulpes::kernels::test
