#include "vulpes/market/baselines.hpp"

#include <algorithm>
#include <cmath>

#include "vulpes/market/features.hpp"

namespace vulpes::market {
namespace {

constexpr Action market_order(int level) { return {static_cast<std::uint8_t>(level), 0, 0}; }
constexpr int short_level = 0, flat_level = 4, long_level = 8;

/// The mean-reversion rule; `position` is its target so far: -1, 0 or 1.
class ZScoreRule {
 public:
  static constexpr std::size_t window = 20;
  static constexpr double entry = 2.0;

  int next(const std::vector<double>& close, std::size_t first, std::size_t t) {
    if (t + 1 - first < window) return position_;
    double mean = 0, squares = 0;
    for (std::size_t i = t + 1 - window; i <= t; ++i) mean += std::log(close[i]);
    mean /= static_cast<double>(window);
    for (std::size_t i = t + 1 - window; i <= t; ++i)
      squares += (std::log(close[i]) - mean) * (std::log(close[i]) - mean);
    const double sd = std::sqrt(squares / static_cast<double>(window));
    const double z = sd > 0 ? (std::log(close[t]) - mean) / sd : 0.0;
    if (z >= entry) {
      position_ = -1;
    } else if (z <= -entry) {
      position_ = 1;
    } else if (position_ * z >= 0) {  // back at the mean
      position_ = 0;
    }
    return position_;
  }

 private:
  int position_ = 0;
};

}  // namespace

std::vector<double> run_baseline(Baseline baseline, const Bars& bars, const io::AccountConfig& account,
                                 std::size_t begin, std::size_t end) {
  std::vector<double> growth;
  if (end < begin + 2) return growth;
  std::size_t first = begin;
  while (first > 0 && bars.segment[first - 1] == bars.segment[begin]) --first;
  first = std::max(first, begin - std::min(begin, ZScoreRule::window));
  const AccountRules rules = make_account_rules(account);
  Account state = open_account(rules);
  ZScoreRule rule;
  growth.reserve(end - begin - 1);
  const auto bar = [&](std::size_t t) { return Bar{bars.open[t], bars.high[t], bars.low[t], bars.close[t], 0.0}; };
  for (std::size_t t = begin; t + 1 < end; ++t) {
    int level = flat_level;
    if (baseline == Baseline::buy_and_hold) level = long_level;
    if (baseline == Baseline::z_score) {
      const int position = rule.next(bars.close, first, t);
      level = position > 0 ? long_level : position < 0 ? short_level : flat_level;
    }
    const BarOutcome outcome = advance(state, rules, market_order(level), bar(t), bar(t + 1));
    growth.push_back(outcome.log_growth);
    if (outcome.ruined) break;
  }
  return growth;
}

std::optional<RatioEstimate> growth_ratio(const std::vector<double>& agent, const std::vector<double>& reference,
                                          std::size_t block) {
  const std::size_t n = std::min(agent.size(), reference.size());
  const std::size_t blocks = block > 0 ? n / block : 0;
  double agent_sum = 0, reference_sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    agent_sum += agent[i];
    reference_sum += reference[i];
  }
  if (blocks < 8 || !(reference_sum > 0)) return std::nullopt;
  RatioEstimate r;
  r.ratio = agent_sum / reference_sum;
  // Linearised: the error of the ratio is that of the mean of (agent - ratio * reference), over the reference's mean.
  std::vector<double> residual(blocks, 0.0);
  double mean = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t i = b * block; i < (b + 1) * block; ++i) residual[b] += agent[i] - r.ratio * reference[i];
    mean += residual[b] / static_cast<double>(blocks);
  }
  double squares = 0;
  for (const double v : residual) squares += (v - mean) * (v - mean);
  const double block_variance = squares / static_cast<double>(blocks - 1);
  const double bar_mean = reference_sum / static_cast<double>(n);
  r.standard_error = std::sqrt(block_variance / static_cast<double>(blocks)) / static_cast<double>(block) / bar_mean;
  return r;
}

}  // namespace vulpes::market
