#include "vulpes/core/parameter_layout.hpp"

#include <gtest/gtest.h>

namespace vulpes {
namespace {

TEST(ParameterLayout, SlicesAreAlignedAndDisjointInOrder) {
  ParameterLayout layout;
  layout.add("a.weight", 3, 5, true);
  layout.add("a.bias", 1, 3, false);
  layout.add("b.weight", 51, 64, true);
  std::size_t end = 0;
  for (const TensorSlice& t : layout.tensors()) {
    EXPECT_EQ(t.offset * sizeof(float) % 128, 0u) << t.name;
    EXPECT_GE(t.offset, end);
    end = t.offset + t.size();
  }
  EXPECT_GE(layout.size(), end);
  EXPECT_EQ(layout.parameter_count(), 15u + 3u + 51u * 64u);
  EXPECT_EQ(layout.find("a.bias").offset, 32u);
  EXPECT_THROW(layout.find("c"), std::out_of_range);
}

TEST(ParameterLayout, ChunksCoverEveryParameterOnceAndNeverStraddleTensors) {
  ParameterLayout layout;
  layout.add("a", 7, 9, true);
  layout.add("b", 1, 100, false);
  layout.add("c", 4, 4, true);
  std::vector<int> covered(layout.size(), 0);
  for (const Chunk& c : make_chunks(layout, 16)) {
    const TensorSlice& t = layout[c.tensor];
    ASSERT_LE(t.offset, c.begin);
    ASSERT_LE(c.end, t.offset + t.size());
    ASSERT_LE(c.end - c.begin, 16u);
    for (std::uint32_t i = c.begin; i < c.end; ++i) ++covered[i];
  }
  std::size_t count = 0;
  for (const int n : covered) {
    EXPECT_LE(n, 1);
    count += n;
  }
  EXPECT_EQ(count, layout.parameter_count());
}

}  // namespace
}  // namespace vulpes
