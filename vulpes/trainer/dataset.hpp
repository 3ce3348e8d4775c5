// Bars, features and ranges of a run, on the host: from a file or from the synthetic market.
#pragma once

#include <string>
#include <vector>

#include "vulpes/evaluator/backtest.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/market/bars.hpp"
#include "vulpes/market/features.hpp"
#include "vulpes/trainer/folds.hpp"

namespace vulpes::trainer {

/// All series one after the other; row i of every table belongs to bar i.
struct Dataset {
  market::Bars bars;
  market::FeatureSet features;
  std::vector<market::Bar> account_bars;
  std::vector<double> component;  ///< mean-reverting synthetic market only: what it hides, for the reference policies
  double bars_a_year = 0;
  bool synthetic = false;
  std::string source;
  std::vector<std::string> notes;  ///< for the log: gaps, warnings

  /// Ranges of each fold; test ranges may be several (independent paths).
  struct FoldRanges {
    int number = 1;
    Range train, validation;
    std::vector<Range> test;
  };
  std::vector<FoldRanges> folds;
};

/// Reads data.file, or generates the synthetic market when it is empty. Throws InputError for bad data, or for too
/// little.
Dataset load_dataset(const io::Config& config);

/// Bars that load_dataset generates without a file.
std::size_t synthetic_bars(const io::Config& config);

/// The bars of a file as a Dataset without folds: for evaluation and for `vulpes data`.
Dataset load_bars(const io::Config& config, const std::string& path);

/// Intervals of `range` where an episode may start, for transitions of up to `n_step` bars.
std::vector<kernels::StartInterval> start_intervals(const Dataset& data, Range range, std::size_t n_step);

/// Usable bars of `range` as walks for a backtest.
std::vector<evaluator::Walk> walks_of(const Dataset& data, Range range, std::size_t longest);

}  // namespace vulpes::trainer
