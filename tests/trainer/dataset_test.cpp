#include "vulpes/trainer/dataset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "training_parts.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/trainer/fold_trainer.hpp"

namespace vulpes::trainer {
namespace {

/// A dataset of which only segments and usable bars matter.
Dataset bare(std::vector<std::int32_t> segments, std::vector<std::uint8_t> usable) {
  Dataset data;
  data.source = "bare";
  data.bars.segment = std::move(segments);
  data.features.usable = std::move(usable);
  return data;
}

std::vector<std::size_t> all_starts(const std::vector<kernels::StartInterval>& intervals) {
  std::vector<std::size_t> starts;
  for (const kernels::StartInterval& s : intervals) {
    EXPECT_EQ(s.before, starts.size());
    EXPECT_GT(s.count, 0u);
    for (std::uint32_t i = 0; i < s.count; ++i) starts.push_back(s.begin + i);
  }
  return starts;
}

// cases.md: training range 0..999, n = 5: last start 994 (its fifth bar fills and marks in bar 999).
TEST(StartIntervals, TrainingRange0To999LastStart994) {
  const Dataset data = bare(std::vector<std::int32_t>(1500, 0), std::vector<std::uint8_t>(1500, 1));
  const auto starts = all_starts(start_intervals(data, {0, 1000}, 5));
  EXPECT_EQ(starts.front(), 0u);
  EXPECT_EQ(starts.back(), 994u);
  EXPECT_EQ(starts.size(), 995u);
}

TEST(StartIntervals, NoTransitionCrossesASegmentOrTheRangesEnd) {
  const RandomKey key{4, 0};
  for (std::uint32_t trial = 0; trial < 100; ++trial) {
    const auto draw = [&](std::uint32_t i) { return random_words(key, Purpose::test, trial, i); };
    std::vector<std::int32_t> segments;
    std::vector<std::uint8_t> usable;
    int warm = 0;
    for (std::uint32_t i = 0; i < 80; ++i) {
      const bool cut = i == 0 || uniform_below(draw(i)[0], 12) == 0;
      segments.push_back(i == 0 ? 0 : segments.back() + cut);
      if (cut) warm = static_cast<int>(uniform_below(draw(i)[1], 5));
      usable.push_back(warm-- <= 0);
    }
    const std::size_t n = 1 + uniform_below(draw(1000)[0], 4), begin = uniform_below(draw(1000)[1], 20),
                      end = begin + 30 + uniform_below(draw(1000)[2], 30);
    std::vector<std::size_t> expected;
    for (std::size_t t = begin; t + n < end; ++t) {
      if (usable[t] && segments[t] == segments[t + n]) expected.push_back(t);
    }
    const Dataset data = bare(segments, usable);
    if (expected.empty()) {
      EXPECT_THROW(start_intervals(data, {begin, end}, n), InputError);
    } else {
      EXPECT_EQ(all_starts(start_intervals(data, {begin, end}, n)), expected) << "trial " << trial;
    }
  }
}

// cases.md: times 0, 60, 120, 600 s at 60 s bars: one gap, 7 bars missing; no n-step return spans it.
TEST(StartIntervals, NoTransitionSpansTheGapOfSevenBars) {
  Dataset data = bare({0, 0, 0, 0}, {1, 1, 1, 1});
  for (const std::int64_t seconds : {0, 60, 120, 600}) data.bars.time.push_back(seconds * 1'000'000'000);
  EXPECT_EQ(market::assign_segments(data.bars, 60).missing, 7);
  EXPECT_EQ(all_starts(start_intervals(data, {0, 4}, 1)), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(all_starts(start_intervals(data, {0, 4}, 2)), (std::vector<std::size_t>{0}));
  EXPECT_THROW(start_intervals(data, {0, 4}, 3), InputError);
}

TEST(StartIntervals, NoStartIsAnErrorThatSaysWhy) {
  const Dataset data = bare({0, 0, 0, 0}, {0, 0, 0, 1});
  try {
    start_intervals(data, {0, 4}, 1);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("bare: no bar of the training range [0, 4)"), std::string::npos) << e.what();
  }
}

TEST(Dataset, SyntheticPathsAreIndependentSegmentsAfterTheirRunIn) {
  const io::Config config = test::small_config();
  const Dataset data = load_dataset(config);
  ASSERT_EQ(data.folds.size(), 1u);
  const Dataset::FoldRanges& fold = data.folds[0];
  ASSERT_EQ(fold.test.size(), 2u);
  EXPECT_EQ(fold.train.size(), 800u);
  EXPECT_EQ(fold.validation.size(), 200u);
  EXPECT_EQ(data.bars.size(), 4u * 256 + 800 + 3 * 200);
  EXPECT_EQ(data.component.size(), data.bars.size());
  std::vector<Range> ranges = {fold.train, fold.validation, fold.test[0], fold.test[1]};
  for (const Range& r : ranges) {
    EXPECT_EQ(data.bars.segment[r.begin - 256], data.bars.segment[r.end - 1]) << "a path is one segment";
    for (std::size_t i = r.begin; i < r.end; ++i) ASSERT_TRUE(data.features.usable[i]);
    const auto walks = walks_of(data, r, 0);
    ASSERT_EQ(walks.size(), 1u);
    EXPECT_EQ(walks[0].begin, r.begin);
    EXPECT_EQ(walks[0].end, r.end);
  }
  EXPECT_NE(data.bars.close[fold.test[0].begin], data.bars.close[fold.test[1].begin]);
  EXPECT_NE(data.bars.segment[fold.test[0].begin], data.bars.segment[fold.test[1].begin]);
  EXPECT_TRUE(data.synthetic);
}

// cases.md: test rows multiplied by 10: training statistics bit-equal.
TEST(Dataset, TestRowsTimesTenLeaveTrainingStatisticsBitEqual) {
  io::Config config = test::small_config();
  config.folds.kind = "rolling";
  config.folds.count = 2;
  Dataset data = load_dataset(config);
  const Dataset::FoldRanges fold = data.folds[0];
  const auto before = market::Normaliser::fit(data.features, fold.train.begin, fold.train.end, 5, nullptr);
  for (std::size_t i = fold.validation.begin; i < data.bars.size(); ++i) {
    for (auto* prices : {&data.bars.open, &data.bars.high, &data.bars.low, &data.bars.close, &data.bars.volume})
      (*prices)[i] *= 10;
  }
  const market::FeatureSet changed = market::compute_features(data.bars, config.features);
  const auto after = market::Normaliser::fit(changed, fold.train.begin, fold.train.end, 5, nullptr);
  EXPECT_EQ(before.median, after.median);
  EXPECT_EQ(before.scale, after.scale);
}

// Growth 0.15 sd a bar, conditional mean 0.6 sd, three standard deviations: 3 / sqrt(1 - .95^2) + .15 / .05 + .6
// = 13.2077.
TEST(SupportRule, GammaPoint95) {
  const SupportEnds ends = support_rule(0.45, 0.95);
  EXPECT_NEAR(ends.vmax, 0.45 * 13.207689, 1e-5);
  EXPECT_NEAR(ends.vmin, -0.6 * ends.vmax, 1e-12);
}

TEST(MemoryEstimate, IsNearWhatATrainingAllocates) {
  io::Config config = test::small_config();
  config.network = {256, 128, 1, 64, 51};
  config.train.batch = 256;
  config.collect.envs = 128;
  config.replay.rows = 65536;
  static std::uint64_t allocated;
  allocated = 0;
  const Dataset data = load_dataset(config);
  const auto before = Kokkos::Tools::Experimental::get_callbacks();
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos::Tools::SpaceHandle, const char*, const void*, std::uint64_t bytes) { allocated += bytes; });
  const FoldTrainer<Kokkos::DefaultHostExecutionSpace> trainer(config, data, data.folds[0]);
  Kokkos::Tools::Experimental::set_callbacks(before);
  const double estimate = static_cast<double>(estimate_memory(config, data.bars.size(), data.features.columns).total());
  EXPECT_NEAR(static_cast<double>(allocated) / estimate, 1.0, 0.1) << allocated << " bytes, estimate " << estimate;
}

}  // namespace
}  // namespace vulpes::trainer
