// Goals: a log growth wished for over an episode (universal value functions, Schaul et al. 2015, whose goal is fed to
// the network), as the gap that is left to it and a bonus where it is first reached.
#pragma once

#include "vulpes/core/compat.hpp"
#include "vulpes/io/config.hpp"

namespace vulpes::kernels {

struct GoalRules {
  bool on = false;               ///< off: the gap is fed as 0, no goal is drawn, no bonus is paid
  float bonus = 0;               ///< kappa, in units of reward
  float clip = 0;                ///< largest absolute gap
  float growth = 0, spread = 0;  ///< an episode's goal is uniform in growth +- spread; evaluation's is growth
};

/// Goals are in effect when a bonus is paid for them or rows are relabelled with them.
inline GoalRules make_goal_rules(const io::Config& c) {
  return {c.reward.goal_bonus != 0 || c.hindsight.share != 0, static_cast<float>(c.reward.goal_bonus),
          static_cast<float>(c.goal.clip), static_cast<float>(c.goal.growth), static_cast<float>(c.goal.spread)};
}

/// Goal of a training episode from u in [0, 1).
KOKKOS_INLINE_FUNCTION float episode_goal(const GoalRules& rules, float u) {
  return rules.growth + rules.spread * (2.0f * u - 1.0f);
}

/// What is left to the goal after this log growth since the episode's start, as the network sees it. Growth is given in
/// float, as the replay stores it, so that a state is the same when it is acted on and when it is gathered.
KOKKOS_INLINE_FUNCTION float goal_gap(const GoalRules& rules, float goal, float log_growth) {
  return rules.on ? Kokkos::fmax(-rules.clip, Kokkos::fmin(goal - log_growth, rules.clip)) : 0.0f;
}

/// Largest log growth of the episode up to a state, its start (0) included: the account's growth without its drawdown.
KOKKOS_INLINE_FUNCTION float peak_growth(float log_growth, float drawdown) {
  return Kokkos::fmax(0.0f, log_growth - Kokkos::log1p(-drawdown));
}

/// Follows an episode from one of its states and pays the bonus at the decision after which its log growth is at the
/// goal for the first time: once an episode, never for a goal that the start already meets. Rows after the first are
/// compared by their stored growth alone, so that a goal which is one of them is met exactly once.
struct FirstReach {
  GoalRules rules;
  float goal;
  bool reached;

  KOKKOS_INLINE_FUNCTION FirstReach(const GoalRules& r, float wanted, float growth_before, float drawdown_before)
      : rules(r),
        goal(wanted),
        reached(!r.on || r.bonus == 0.0f || peak_growth(growth_before, drawdown_before) >= wanted) {}

  /// Bonus of the next decision, which left this growth.
  KOKKOS_INLINE_FUNCTION float bonus(float growth_after) {
    if (reached || !(growth_after >= goal)) return 0.0f;
    reached = true;
    return rules.bonus;
  }
};

}  // namespace vulpes::kernels
