// The reference: the growth-optimal policy of the synthetic market, under the account's own rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "vulpes/core/random.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/market/account.hpp"
#include "vulpes/market/bars.hpp"

namespace vulpes::market {

/// Steady state of the Kalman filter of the mean-reverting component x given closes. With y = walk + x observed exactly
/// only x is uncertain, so the filter is scalar: x | y ~ N(m, variance), and
///   m' = phi m + gain (y' - y - (phi - 1) m).
struct ComponentFilter {
  double phi = 0;
  double gain = 0;
  double variance = 0;             ///< of x given all closes so far
  double innovation_variance = 0;  ///< of y' - y given all closes so far

  static ComponentFilter steady_state(const io::SyntheticConfig& config);
  double next(double m, double log_return) const { return phi * m + gain * (log_return - (phi - 1.0) * m); }
};

/// What the policy knows of the component, and which actions it may use.
struct ReferenceOptions {
  enum class Information { prices, component };
  Information information = Information::prices;
  bool market_orders_only = false;  ///< and urgency 1
  bool myopic = false;              ///< maximises the next bar's expected growth only, costs included; not solved for
};

/// Growth-optimal (average log growth a bar) policy on (exposure, component estimate) over the whole action set.
/// Solved by relative value iteration; copies share the solution.
class ReferencePolicy {
 public:
  /// Solves; `seed` chooses the Monte Carlo draws (config.optimum_draws of them at each of optimum_points grid points).
  ReferencePolicy(const io::SyntheticConfig& config, const io::AccountConfig& account,
                  const ReferenceOptions& options = {}, std::uint32_t seed = 1);

  /// Expected log growth a bar of this policy. Throws std::logic_error for a myopic one.
  double predicted_growth() const;
  int iterations() const;
  const ComponentFilter& filter() const;

  /// The action at exposure `exposure` and component estimate `estimate` (the component itself with full information).
  Action act(double exposure, double estimate) const;

  /// Walks an account from open_account over bars [begin, end), all of one segment, and returns the end - begin - 1 log
  /// growths, one a decision at begin ... end - 2; shorter after ruin. The filter runs from the segment's first bar on,
  /// so bars before `begin` warm it up. `component` (as from generate_synthetic, one entry a bar) is needed with full
  /// information only. `exposures` (may be null) receives the exposure at each decision.
  std::vector<double> run(const Bars& bars, std::size_t begin, std::size_t end,
                          const std::vector<double>* component = nullptr,
                          std::vector<double>* exposures = nullptr) const;

 private:
  struct Solution;
  std::shared_ptr<const Solution> solution_;
};

}  // namespace vulpes::market
