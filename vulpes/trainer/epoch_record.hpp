// The metrics of an epoch, from what the device recorded.
#pragma once

#include "vulpes/evaluator/backtest.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/trainer/learner.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::trainer {

/// Means over the epoch's accepted steps (a refused step's losses may be NaN): every loss, Q, gradient norms, clipping;
/// the count of refused ones. `records` is the device ring, steps [first, last) of it are the epoch's.
template <class Records>
class EpochMeans {
 public:
  EpochMeans(const Records& records, std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) {
      const auto record = [&](int k) { return records(static_cast<std::size_t>(s) % records.extent(0), k); };
      if (record(kernels::skip_out) != 0) {
        ++skipped_;
        continue;
      }
      ++used_;
      clipped_ += record(kernels::clip_out) < 1 ? 1 : 0;
      for (int k = 0; k < kernels::step_outputs; ++k) sums_[k] += record(k);
    }
  }
  /// Nothing when every step was refused.
  std::optional<double> mean(int k) const {
    return used_ > 0 ? std::optional<double>(sums_[k] / static_cast<double>(used_)) : std::nullopt;
  }
  std::optional<double> clip_share() const {
    return used_ > 0 ? std::optional<double>(static_cast<double>(clipped_) / static_cast<double>(used_)) : std::nullopt;
  }
  std::optional<double> q_sd() const {
    const auto square = mean(kernels::q_square_out), q = mean(kernels::q_out);
    return square ? std::optional<double>(std::sqrt(std::max(0.0, *square - *q * *q))) : std::nullopt;
  }
  std::int64_t skipped() const { return skipped_; }

 private:
  double sums_[kernels::step_outputs] = {};
  std::int64_t used_ = 0, skipped_ = 0, clipped_ = 0;
};

/// Appends weight norm by tensor group, sparsity and sigma of each bounded matrix to `record`. Reads device memory.
template <class Space>
void add_weight_figures(const Space& space, const Learner<Space>& learner, io::Record& record);

/// Resident memory of this process in MB; nothing where the system does not say.
std::optional<double> resident_megabytes();

}  // namespace vulpes::trainer
