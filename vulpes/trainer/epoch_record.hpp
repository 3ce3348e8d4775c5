// The metrics of an epoch, from what the device left behind it.
#pragma once

#include <cmath>
#include <optional>

#include "vulpes/core/instances.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/trainer/learner.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::trainer {

/// Means over the epoch's accepted steps (a refused step's losses may be NaN): every loss, Q, gradient norms, clipping;
/// the count of refused ones. `records` [rows, step_outputs] is the ring that the
/// device wrote, steps [first, last) of it are the epoch's.
class EpochMeans {
 public:
  EpochMeans(const double* records, std::int64_t rows, std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) {
      const auto record = [&](int k) { return records[s % rows * kernels::step_outputs + k]; };
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

/// Figures, causal measurements and step records as they were at a point of the device's queue. The host reads them
/// later, without having stopped the device.
template <class Space>
class EpochFigures {
 public:
  EpochFigures() = default;
  EpochFigures(const Space& space, const StepContext<Space>& context);

  /// Queues their writing behind the work that `space` holds now.
  void queue(const Space& space);
  /// Waits for it; what follows may be called after.
  void wait() const { written_.wait(); }
  double figure(int k) const { return shared_(k); }
  double sigma(std::size_t matrix) const { return shared_(kernels::sigma_figure + matrix); }
  /// Row `row` of the ring of causal measurements.
  double delta(std::int64_t row, std::size_t group) const {
    return shared_(sources_.figures() + row % sources_.deltas.extent(0) * sources_.deltas.extent(1) + group);
  }
  EpochMeans means(std::int64_t first, std::int64_t last) const {
    return {shared_.data() + sources_.figures() + sources_.deltas.size(),
            static_cast<std::int64_t>(sources_.records.extent(0)), first, last};
  }

 private:
  kernels::EpochSources<Space> sources_;
  kernels::SharedFigures shared_;
  Event<Space> written_;
};

/// Resident memory of this process in MB; nothing where the system does not say.
std::optional<double> resident_megabytes();

}  // namespace vulpes::trainer
