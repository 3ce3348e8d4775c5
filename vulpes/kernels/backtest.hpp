// One bar-step of a batched backtest: greedy actions, the same account, everything recorded.
#pragma once

#include "vulpes/kernels/action_values.hpp"
#include "vulpes/kernels/formulas/goal.hpp"
#include "vulpes/kernels/market_table.hpp"

namespace vulpes::kernels {

/// An account that walks over bars [begin, end) of the table.
struct BacktestAccount {
  market::Account account;
  std::uint32_t bar;    ///< of the next decision
  std::uint32_t end;    ///< decisions at bars < end - 1; the last one marks at end - 1
  double goal_start;    ///< equity that the goal's growth is counted from; set at the start and again every `window`
                        ///< decisions
  std::uint32_t steps;  ///< decisions made: the row of its next record
  std::uint32_t reserved;
};

/// What one decision did.
struct BacktestRecord {
  double log_growth;
  double equity;    ///< after the bar
  double exposure;  ///< after the bar, at its close
  double fill_units, fill_price, fee;
  std::uint8_t action[branches];
};

template <class Space>
struct BacktestArguments {
  NetworkShape shape;
  Support<float> support;
  market::AccountRules rules;
  GoalRules goal;               ///< the goal is goal.growth, begun again every `window` decisions; the account is not
  std::uint32_t window = 0;     ///< of a training episode
  const float* bias = nullptr;  ///< output bias of the acting network
  MarketTable<Space> table;
};

template <class Space>
struct BacktestBuffers {
  int accounts = 0;
  Activations<Space, float> activations;
  Matrix<float, Space> base, q;
  Vector<BacktestAccount, Space> state;
  Matrix<BacktestRecord, Space> records;  ///< [steps, accounts]
  BacktestBuffers() = default;
  BacktestBuffers(const Space& space, const NetworkShape& shape, int accounts, int steps);
};

/// Writes the accounts' first states into activations.input.
template <class Space>
void begin_backtest(const Space& space, const BacktestArguments<Space>& arguments,
                    const BacktestBuffers<Space>& buffers);

/// After a forward pass: greedy actions, one bar, one row of records, the next states.
template <class Space>
void backtest_step(const Space& space, const BacktestArguments<Space>& arguments,
                   const BacktestBuffers<Space>& buffers);

}  // namespace vulpes::kernels
