#include "vulpes/core/graph.hpp"

#include <gtest/gtest.h>

#include "vulpes/core/instances.hpp"
#include "vulpes/core/transfer.hpp"

namespace vulpes {
namespace {

template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
#define VULPES_AND_SPACE(S) , S
using EachSpace = SpaceList < void VULPES_FOR_EACH_SPACE(VULPES_AND_SPACE)
> ::Types;

/// v[to] = keep v[to] + factor v[from] + constant. (nvcc takes no lambda from a test's body.)
template <class Space>
struct Affine {
  Vector<int, Space> v;
  int to, keep, from, factor, constant;
  KOKKOS_FUNCTION void operator()(std::int64_t) const { v(to) = keep * v(to) + factor * v(from) + constant; }
  void launch(const Space& space) const { Kokkos::parallel_for("vulpes::test::affine", range(space, 1), *this); }
};

template <class Space>
struct GraphTest : testing::Test {
  const Space space = instance_of<Space>(Queue::main), side = instance_of<Space>(Queue::side);
  const Vector<int, Space> values = allocate_zeroed<Vector<int, Space>>(space, "vulpes::test::values", 2);

  /// A body that owns what it uses: values[1] += values[0].
  auto adding() const {
    return [space = space, add = Affine<Space>{values, 1, 1, 0, 1, 0}] { add.launch(space); };
  }
  void set(int first) const {
    const std::vector<int> both = {first, 0};
    Kokkos::deep_copy(space, Kokkos::subview(values, 0), both[0]);
  }
  int result() const {
    space.fence("vulpes::test::result");
    return download(values)[1];
  }
};
TYPED_TEST_SUITE(GraphTest, EachSpace);

TYPED_TEST(GraphTest, AReplayReadsDeviceMemoryAsItIsThen) {
  this->adding()();
  const Graph<TypeParam> graph(this->space, this->adding());
  EXPECT_TRUE(graph);
  EXPECT_EQ(this->result(), 0) << "recording must run nothing";
  for (const int v : {1, 10, 100}) {
    this->set(v);
    graph.launch(this->space);
  }
  EXPECT_EQ(this->result(), 111);
}

TYPED_TEST(GraphTest, AFailedPhaseRunsNothingAndLeavesTheInstanceUsable) {
  this->set(1);
  this->adding()();
  for (int phase = 1; phase <= static_cast<int>(GraphPhase::launch); ++phase) {
    const auto record_and_launch = [&] {
      Graph<TypeParam>(this->space, this->adding(), static_cast<GraphPhase>(phase)).launch(this->space);
    };
    EXPECT_THROW(record_and_launch(), GraphError) << phase;
    EXPECT_EQ(this->result(), 1) << phase;
  }
  Graph<TypeParam>(this->space, this->adding()).launch(this->space);
  EXPECT_EQ(this->result(), 2);
}

TYPED_TEST(GraphTest, AForkedBranchIsPartOfTheRecording) {
  const Event<TypeParam> forked, joined;
  const auto body = [space = this->space, side = this->side, forked, joined, v = this->values] {
    order(space, side, forked);
    Affine<TypeParam>{v, 0, 1, 0, 0, 5}.launch(side);
    order(side, space, joined);
    Affine<TypeParam>{v, 1, 0, 0, 2, 0}.launch(space);
  };
  body();
  const Graph<TypeParam> graph(this->space, body);
  for (int i = 0; i < 3; ++i) graph.launch(this->space);
  EXPECT_EQ(this->result(), 40);
}

TYPED_TEST(GraphTest, ReplayedRunsEagerlyThenRecordsThenReplays) {
  Replayed<TypeParam> piece;
  int made = 0;
  this->set(3);
  for (int i = 0; i < 5; ++i) {
    piece.run(this->space, [&] {
      ++made;
      return this->adding();
    });
  }
  EXPECT_EQ(this->result(), 15);
  EXPECT_EQ(made, 2);
}

TEST(Graph, PhasesHaveNames) {
  EXPECT_EQ(graph_phase("none"), GraphPhase::none);
  EXPECT_EQ(graph_phase("instantiate"), GraphPhase::instantiate);
  EXPECT_THROW(graph_phase("middle"), InputError);
}

}  // namespace
}  // namespace vulpes
