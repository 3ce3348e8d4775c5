#include "vulpes/trainer/folds.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "vulpes/core/errors.hpp"

namespace vulpes::trainer {
namespace {

io::FoldsConfig config_of(const std::string& kind, std::int64_t count, double validation, double test,
                          std::int64_t embargo = 0) {
  io::FoldsConfig c;
  c.kind = kind;
  c.count = count;
  c.validation_fraction = validation;
  c.test_fraction = test;
  c.embargo = embargo;
  return c;
}

/// The number of bars that the error for too few names; 0: no error.
std::size_t bars_asked_for(std::size_t bars, const io::FoldsConfig& c, std::size_t warm_up, std::size_t n_step,
                           std::size_t window) {
  try {
    make_folds(bars, c, warm_up, n_step, window);
  } catch (const InputError& e) {
    const std::string text = e.what();
    const std::size_t end = text.find(" are needed");
    const std::size_t colon = text.rfind(": ", end);
    if (end == std::string::npos || colon == std::string::npos) {
      ADD_FAILURE() << text;
      return 0;
    }
    return std::stoull(text.substr(colon + 2, end - colon - 2));
  }
  return 0;
}

void expect_range(const Range& range, std::size_t begin, std::size_t end) {
  EXPECT_EQ(range.begin, begin);
  EXPECT_EQ(range.end, end);
}

TEST(Folds, SingleSplitsByFractions) {
  const std::vector<Fold> folds = make_folds(1100, config_of("single", 1, .2, .1), 100, 1, 50);
  ASSERT_EQ(folds.size(), 1u);
  EXPECT_EQ(folds[0].number, 1);
  expect_range(folds[0].train, 100, 796);  // embargoes of 2 bars at 796 and 998
  expect_range(folds[0].validation, 798, 998);
  expect_range(folds[0].test, 1000, 1100);
}

TEST(Folds, RollingKeepsTheTrainingLength) {
  // 1200 usable bars = span L + 2 tests of L / 10: L = 1000.
  const std::vector<Fold> folds = make_folds(1300, config_of("rolling", 3, .2, .1, 10), 100, 5, 50);
  ASSERT_EQ(folds.size(), 3u);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(folds[k].number, static_cast<int>(k) + 1);
    expect_range(folds[k].train, 100 + 100 * k, 780 + 100 * k);
    expect_range(folds[k].validation, 790 + 100 * k, 990 + 100 * k);
    expect_range(folds[k].test, 1000 + 100 * k, 1100 + 100 * k);
  }
}

TEST(Folds, AnchoredTrainsFromTheFirstUsableBar) {
  const std::vector<Fold> folds = make_folds(1300, config_of("anchored", 3, .2, .1, 10), 100, 5, 50);
  ASSERT_EQ(folds.size(), 3u);
  for (std::size_t k = 0; k < 3; ++k) {
    expect_range(folds[k].train, 100, 780 + 100 * k);
    expect_range(folds[k].test, 1000 + 100 * k, 1100 + 100 * k);
  }
}

// cases.md: training range 0..999, n = 5: last start 994 (its fifth bar fills and marks in bar 999).
TEST(Folds, LastStartOfATrainingRangeOf1000BarsIs994) {
  EXPECT_EQ(last_start({0, 1000}, 5), 994u);
  EXPECT_EQ(last_start({7, 13}, 5), 7u);
  EXPECT_THROW(last_start({7, 12}, 5), std::invalid_argument);
  EXPECT_THROW(last_start({0, 0}, 1), std::invalid_argument);
}

// cases.md: one bar, or a fold shorter than its warm-up + n + a window: an error that says how many bars are needed.
TEST(Folds, TooFewBarsSayHowManyAreNeeded) {
  const io::FoldsConfig c = config_of("rolling", 2, .15, .15);
  for (const std::size_t bars : {0u, 1u, 128u, 128u + 513u}) {
    const std::size_t needed = bars_asked_for(bars, c, 128, 1, 512);
    EXPECT_GT(needed, 128u + 1 + 512) << bars;
    EXPECT_EQ(bars_asked_for(needed - 1, c, 128, 1, 512), needed) << bars;
    EXPECT_EQ(bars_asked_for(needed, c, 128, 1, 512), 0u) << bars;
  }
  try {
    make_folds(1, c, 128, 1, 512);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("1 bar is too few for 2 rolling folds: ", 0), 0u) << e.what();
  }
}

TEST(Folds, RefusesFractionsAndCountsThatCannotBe) {
  EXPECT_THROW(make_folds(100000, config_of("single", 1, .5, .5), 0, 1, 8), InputError);
  EXPECT_THROW(make_folds(100000, config_of("rolling", 3, .9, .9), 0, 1, 8), InputError);
  EXPECT_THROW(make_folds(100000, config_of("single", 2, .2, .2), 0, 1, 8), InputError);
}

TEST(Folds, HoldForRandomSizes) {
  setenv("RC_PARAMS", "seed=1 max_success=2000", 0);  // the same cases in every run
  const bool passed = rc::check("folds", [] {
    const auto kind = *rc::gen::element<std::string>("single", "rolling", "anchored");
    const auto count = kind == "single" ? 1 : *rc::gen::inRange<std::int64_t>(1, 12);
    const double validation = *rc::gen::inRange(1, 50) / 100.0, test = *rc::gen::inRange(1, 45) / 100.0;
    const auto warm_up = *rc::gen::inRange<std::size_t>(0, 300), window = *rc::gen::inRange<std::size_t>(2, 600);
    const auto n_step = *rc::gen::inRange<std::size_t>(1, 20);
    const io::FoldsConfig c = config_of(kind, count, validation, test, *rc::gen::inRange<std::int64_t>(0, 50));
    const auto bars = *rc::gen::inRange<std::size_t>(0, 20000);

    const std::size_t needed = bars_asked_for(bars, c, warm_up, n_step, window);
    if (needed != 0) {
      RC_ASSERT(needed > bars);
      RC_ASSERT(bars_asked_for(needed, c, warm_up, n_step, window) == 0u);
    }
    const std::size_t used = needed != 0 ? needed : bars;
    const std::vector<Fold> folds = make_folds(used, c, warm_up, n_step, window);
    RC_ASSERT(folds.size() == static_cast<std::size_t>(count));
    const std::size_t embargo = std::max(static_cast<std::size_t>(c.embargo), n_step + 1);
    for (std::size_t k = 0; k < folds.size(); ++k) {
      const Fold& f = folds[k];
      RC_ASSERT(f.number == static_cast<int>(k) + 1);
      // Long enough, in order, an embargo apart.
      RC_ASSERT(f.train.end >= f.train.begin + n_step + window);
      RC_ASSERT(f.validation.begin == f.train.end + embargo);
      RC_ASSERT(f.validation.end >= f.validation.begin + n_step + 1);
      RC_ASSERT(f.test.begin == f.validation.end + embargo);
      RC_ASSERT(f.test.end >= f.test.begin + n_step + 1);
      // No training transition reaches validation, no validation one the test.
      RC_ASSERT(last_start(f.train, n_step) + n_step < f.train.end);
      // Tests tile the bars up to the last one.
      RC_ASSERT(f.test.end == (k + 1 < folds.size() ? folds[k + 1].test.begin : used));
      RC_ASSERT(f.test.size() == folds[0].test.size());
      RC_ASSERT(f.validation.size() == folds[0].validation.size());
      if (kind == "anchored") {
        RC_ASSERT(f.train.begin == warm_up);
      } else {
        RC_ASSERT(f.train.size() == folds[0].train.size());
        RC_ASSERT(k > 0 || f.train.begin == warm_up);
      }
    }
    // Shares of the span, to a bar: what rounding leaves is with training.
    const Fold& f = folds[0];
    const double span = static_cast<double>(used - warm_up) / (1.0 + static_cast<double>(count - 1) * test);
    RC_ASSERT(std::fabs(static_cast<double>(f.test.size()) - test * span) <= 1.0);
    RC_ASSERT(std::fabs(static_cast<double>(f.validation.size()) - validation * span) <= 1.0);
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace vulpes::trainer
