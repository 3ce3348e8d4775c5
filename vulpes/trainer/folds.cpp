#include "vulpes/trainer/folds.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "vulpes/core/errors.hpp"

namespace vulpes::trainer {
namespace {

struct Lengths {
  std::size_t train, validation, test;
};

/// What a fold has to hold apart from its share of the bars.
struct Needs {
  std::size_t folds, warm_up, embargo, train, other;
};

/// Lengths of the first fold; absent when `bars` are too few.
std::optional<Lengths> fit(std::size_t bars, const io::FoldsConfig& config, const Needs& needs) {
  if (bars <= needs.warm_up) return std::nullopt;
  const std::size_t usable = bars - needs.warm_up;
  const double span = static_cast<double>(usable) / (1.0 + static_cast<double>(needs.folds - 1) * config.test_fraction);
  const auto test = static_cast<std::size_t>(config.test_fraction * span);
  const auto validation = static_cast<std::size_t>(config.validation_fraction * span);
  const std::size_t taken = needs.folds * test + validation + 2 * needs.embargo;
  if (test < needs.other || validation < needs.other || usable < taken + needs.train) return std::nullopt;
  return Lengths{usable - taken, validation, test};
}

/// Bars that would be enough, found between `bars`, which are not, and a number that is.
std::optional<std::size_t> enough(std::size_t bars, const io::FoldsConfig& config, const Needs& needs) {
  constexpr std::size_t most = std::size_t{1} << 52;
  std::size_t low = bars, high = std::max<std::size_t>(bars, 1);
  while (!fit(high, config, needs)) {
    if (high > most) return std::nullopt;
    high *= 2;
  }
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (fit(middle, config, needs) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::vector<Fold> make_folds(std::size_t bars, const io::FoldsConfig& config, std::size_t warm_up, std::size_t n_step,
                             std::size_t window) {
  const bool single = config.kind == "single";
  throw_if<InputError>(single && config.count != 1,
                       "folds.count = " + std::to_string(config.count) +
                           ": folds.kind = single has one fold; set folds.kind to rolling or anchored");
  const Needs needs{static_cast<std::size_t>(config.count), warm_up,
                    std::max(static_cast<std::size_t>(config.embargo), n_step + 1), n_step + window, n_step + 1};
  const std::optional<Lengths> lengths = fit(bars, config, needs);
  if (!lengths) {
    const std::optional<std::size_t> enough_bars = enough(bars, config, needs);
    throw_if<InputError>(!enough_bars,
                         "folds.validation_fraction + folds.test_fraction leave no bars to train on; lower them");
    throw InputError(std::to_string(bars) + (bars == 1 ? " bar is" : " bars are") + " too few for " +
                     std::to_string(config.count) + " " + config.kind + (config.count == 1 ? " fold: " : " folds: ") +
                     std::to_string(*enough_bars) + " are needed (warm-up " + std::to_string(warm_up) + ", embargo " +
                     std::to_string(needs.embargo) + ", training window + n_step " + std::to_string(needs.train) +
                     "); give more data, or lower folds.count, collect.window or the longest window of features");
  }

  std::vector<Fold> folds;
  const std::size_t first_test = bars - needs.folds * lengths->test;
  for (std::size_t k = 0; k < needs.folds; ++k) {
    Fold fold;
    fold.number = static_cast<int>(k) + 1;
    fold.test.begin = first_test + k * lengths->test;
    fold.test.end = fold.test.begin + lengths->test;
    fold.validation.end = fold.test.begin - needs.embargo;
    fold.validation.begin = fold.validation.end - lengths->validation;
    fold.train.end = fold.validation.begin - needs.embargo;
    fold.train.begin = config.kind == "anchored" ? warm_up : fold.train.end - lengths->train;
    folds.push_back(fold);
  }
  return folds;
}

std::size_t last_start(Range range, std::size_t n_step) {
  throw_if<std::invalid_argument>(range.end < range.begin + n_step + 1,
                                  "last_start: a range of bars [" + std::to_string(range.begin) + ", " +
                                      std::to_string(range.end) + ") holds no transition of " + std::to_string(n_step) +
                                      " bars");
  return range.end - 1 - n_step;
}

}  // namespace vulpes::trainer
