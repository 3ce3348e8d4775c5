// Walk-forward folds: which bars train, validate and test.
#pragma once

#include <cstddef>
#include <vector>

#include "vulpes/io/config.hpp"

namespace vulpes::trainer {

/// Bars [begin, end).
struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

/// In time order, an embargo apart: train, validation, test.
struct Fold {
  int number;  ///< from 1
  Range train, validation, test;
};

/// Folds over bars [warm_up, bars).
///
/// A fold spans L bars: train, embargo, validation (validation_fraction L), embargo, test (test_fraction L); fractions
/// are rounded down and training gets what is left. `rolling` shifts the span by the test length from fold to fold;
/// `anchored` does the same but always begins to train at `warm_up`; `single` is one fold. L is such that `count` folds
/// end at the last bar: test ranges follow each other without overlap or hole. (No account is held over the first bar
/// of a later test range: fold k may not decide on a bar whose fill lies beyond its range.)
///
/// The embargo is folds.embargo, at least n_step + 1 bars. `window`: bars of a training episode.
///
/// Throws InputError when a training range cannot hold n_step + window bars, or another n_step + 1, with the number of
/// bars that would do; and when the fractions leave nothing to train on.
std::vector<Fold> make_folds(std::size_t bars, const io::FoldsConfig& config, std::size_t warm_up, std::size_t n_step,
                             std::size_t window);

/// The last bar of `range` at which an n-step transition may start: the decision at bar t fills and marks in t + 1, and
/// no bar at or after the range's end may be used. Throws std::invalid_argument when there is none.
std::size_t last_start(Range range, std::size_t n_step);

}  // namespace vulpes::trainer
