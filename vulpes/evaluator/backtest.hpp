// Runs a policy over bars with the account of training.
#pragma once

#include <map>
#include <vector>

#include "vulpes/agent/agent.hpp"
#include "vulpes/core/graph.hpp"
#include "vulpes/kernels/backtest.hpp"

namespace vulpes::evaluator {

/// Bars [begin, end) of the table that one account walks over, within one segment; the first decision is at `begin`,
/// the last bar is only marked.
struct Walk {
  std::uint32_t begin = 0, end = 0;
};

/// Decisions of one account, in order.
struct WalkResult {
  Walk walk;
  std::vector<kernels::BacktestRecord> records;
  std::vector<float> states;  ///< [records, S] what the network saw, if asked for
  double start_equity = 0;
  bool ruined = false;
};

/// Cuts [begin, end) at segment ends into walks of at most `longest` decisions (0: no limit), leaving out bars that are
/// not usable. Walks that follow each other share a bar, so that no bar's return is lost. `segments` and `usable` are
/// of the whole table.
std::vector<Walk> make_walks(std::size_t begin, std::size_t end, const std::vector<std::int32_t>& segments,
                             const std::vector<std::uint8_t>& usable, std::size_t longest);

/// The acting network for backtests, parameters in device memory, and the goal that it is given.
template <class Space>
struct Actor {
  const kernels::Network& network;
  kernels::Support<float> support;
  Vector<float, Space> parameters;
  kernels::GoalRules goal = {};
};

/// A backtest of given walks that can be run again: buffers and recorded bars are kept.
///
/// All accounts walk at once, greedily; each starts with rules.initial_equity. `window`: decisions of a training
/// episode, after which the goal begins again from the present equity. Memory grows with the walks' records only.
template <class Space>
class Backtester {
 public:
  /// Works on `space` alone; waits for nothing else but where it allocates.
  Backtester(const Space& space, const Actor<Space>& actor, const kernels::MarketTable<Space>& table,
             const market::AccountRules& rules, std::uint32_t window, std::vector<Walk> walks);

  /// With the actor's network and `parameters`, which must stay where they are until the last run with them. Results
  /// are in the order of the walks. With `keep_states`, the network's inputs are copied back at every bar (slow).
  std::vector<WalkResult> run(const Vector<float, Space>& parameters, bool keep_states = false);

 private:
  /// Bars of one recorded piece; accounts that ended do nothing in the bars that are left of it.
  static constexpr int unrolled = is_host_space<Space> ? 1 : 32;

  Space space_;
  kernels::Network network_;
  kernels::BacktestArguments<Space> arguments_;
  std::vector<Walk> walks_;
  int steps_ = 0;
  kernels::BacktestBuffers<Space> buffers_;
  Vector<kernels::BacktestAccount, Space> start_;
  Kokkos::View<kernels::BacktestAccount*, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace> end_;
  Kokkos::View<kernels::BacktestRecord**, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace> records_;
  std::map<const float*, Replayed<Space>> pieces_;  ///< by parameters
};

/// One run of a Backtester.
template <class Space>
std::vector<WalkResult> backtest(const Space& space, const Actor<Space>& actor,
                                 const kernels::MarketTable<Space>& table, const market::AccountRules& rules,
                                 std::uint32_t window, const std::vector<Walk>& walks, bool keep_states = false);

/// Mean log growth a decision over all walks.
double mean_growth(const std::vector<WalkResult>& results);

}  // namespace vulpes::evaluator
