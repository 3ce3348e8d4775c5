// Rows of accounts whose log growth a test prescribes.
#pragma once

#include <algorithm>
#include <cmath>

#include "replay_fixture.hpp"
#include "vulpes/kernels/formulas/account_state.hpp"

namespace vulpes::kernels::test {

/// One account's decisions, in order, with the goal of its episode and the drawdown from its peak.
class EpisodeRows {
 public:
  /// A decision after which the episode's log growth is `growth`.
  ReplayRow to(float growth, std::uint8_t flags = 0, float goal = 0) {
    ReplayRow row{};
    row.bar = bar_++;
    row.flags = flags;
    row.episode_offset = offset_++;
    row.goal = goal;
    row.before = account();
    growth_ = growth;
    peak_ = std::max(peak_, growth);
    row.after = account();
    if (flags != 0) {
      offset_ = 0;
      growth_ = peak_ = 0;
    }
    return row;
  }
  ReplayRow by(float growth, std::uint8_t flags = 0, float goal = 0) { return to(growth_ + growth, flags, goal); }

 private:
  StoredAccount account() const {
    const double lost = 1 - std::exp(static_cast<double>(growth_) - peak_);
    return {0.5f, 0.0f, static_cast<float>(lost), growth_};
  }

  std::uint32_t bar_ = 0;
  std::uint16_t offset_ = 0;
  float growth_ = 0, peak_ = 0;
};

inline constexpr int test_state_width = 8, gap_column = 2 + account_input_count - 1;  ///< of counting_table

}  // namespace vulpes::kernels::test
