#include "vulpes/trainer/dataset.hpp"

#include <algorithm>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/random.hpp"
#include "vulpes/io/table.hpp"
#include "vulpes/market/import.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::trainer {
namespace {

/// Features and account bars of `data.bars`.
void derive(Dataset& data, const io::Config& config) {
  data.features = market::compute_features(data.bars, config.features);
  data.account_bars = market::account_bars(data.bars, config.account);
  data.bars_a_year = config.data.bars_a_year > 0 ? config.data.bars_a_year : market::bars_a_year(data.bars);
}

/// Independent paths for training, validation and each test path, every one a segment that begins with its run-in.
Dataset synthetic_paths(const io::Config& config) {
  const io::SyntheticConfig& s = config.synthetic;
  const RandomKey key{static_cast<std::uint32_t>(config.run.seed), 0};
  Dataset data;
  Dataset::FoldRanges fold;
  std::uint32_t path = 0;
  const auto add = [&](std::int64_t bars) {
    const std::size_t begin = data.bars.size() + static_cast<std::size_t>(s.run_in);
    std::vector<double> component;
    market::append_segment(
        data.bars, market::generate_synthetic(s, key, path++, static_cast<std::size_t>(s.run_in + bars), &component));
    data.component.insert(data.component.end(), component.begin(), component.end());
    return Range{begin, data.bars.size()};
  };
  fold.train = add(s.train_bars);
  fold.validation = add(s.validation_bars);
  for (std::int64_t i = 0; i < s.test_paths; ++i) fold.test.push_back(add(s.test_bars));
  data.folds.push_back(fold);
  return data;
}

}  // namespace

std::size_t synthetic_bars(const io::Config& config) {
  const io::SyntheticConfig& s = config.synthetic;
  const bool paths = config.folds.kind == "single";
  return static_cast<std::size_t>(paths ? (2 + s.test_paths) * s.run_in + s.train_bars + s.validation_bars +
                                              s.test_paths * s.test_bars
                                        : s.run_in + s.train_bars + s.validation_bars + s.test_bars);
}

Dataset load_bars(const io::Config& config, const std::string& path) {
  Dataset data;
  data.source = path;
  io::ImportOptions options;
  options.duplicates = config.data.duplicates;
  const io::Table table = io::read_bars_table(path, options);
  for (const std::string& warning : table.warnings) data.notes.push_back(warning);
  data.bars = market::bars_from_table(table, config.data.bar_seconds, data.notes);
  derive(data, config);
  return data;
}

Dataset load_dataset(const io::Config& config) {
  Dataset data;
  const bool from_file = !config.data.file.empty();
  if (from_file) {
    data = load_bars(config, config.data.file);
  } else if (config.folds.kind == "single") {
    data = synthetic_paths(config);
    data.source = "synthetic market, seed " + std::to_string(config.run.seed);
    derive(data, config);
  } else {
    const io::SyntheticConfig& s = config.synthetic;
    const auto bars = static_cast<std::size_t>(s.run_in + s.train_bars + s.validation_bars + s.test_bars);
    data.bars =
        market::generate_synthetic(s, {static_cast<std::uint32_t>(config.run.seed), 0}, 0, bars, &data.component);
    data.source = "synthetic market, seed " + std::to_string(config.run.seed);
    derive(data, config);
  }
  data.synthetic = !from_file;
  if (data.folds.empty()) {
    const auto n_step = static_cast<std::size_t>(config.agent.n_step);
    for (const Fold& f : make_folds(data.bars.size(), config.folds, static_cast<std::size_t>(data.features.warm_up),
                                    n_step, static_cast<std::size_t>(config.collect.window))) {
      data.folds.push_back({f.number, f.train, f.validation, {f.test}});
    }
  }
  return data;
}

std::vector<kernels::StartInterval> start_intervals(const Dataset& data, Range range, std::size_t n_step) {
  std::vector<kernels::StartInterval> starts;
  std::uint32_t before = 0;
  for (std::size_t first = range.begin; first < range.end;) {
    std::size_t end = first + 1;
    while (end < range.end && data.bars.segment[end] == data.bars.segment[first]) ++end;
    std::size_t begin = first;
    while (begin < end && !data.features.usable[begin]) ++begin;
    if (begin + n_step < end) {
      const auto count = static_cast<std::uint32_t>(last_start({begin, end}, n_step) - begin + 1);
      starts.push_back({static_cast<std::uint32_t>(begin), before, count});
      before += count;
    }
    first = end;
  }
  throw_if<InputError>(starts.empty(), data.source + ": no bar of the training range [" + std::to_string(range.begin) +
                                           ", " + std::to_string(range.end) +
                                           ") can start an episode: every gap begins a segment whose first " +
                                           std::to_string(data.features.warm_up) + " bars warm the features up");
  return starts;
}

std::vector<evaluator::Walk> walks_of(const Dataset& data, Range range, std::size_t longest) {
  return evaluator::make_walks(range.begin, range.end, data.bars.segment, data.features.usable, longest);
}

}  // namespace vulpes::trainer
