// Contract: greedy actions, one bar of every account that has bars left, one row of records. Accounts do not interact.
#include "vulpes/kernels/backtest.hpp"

#include "vulpes/core/tile.hpp"
#include "vulpes/kernels/state_vector.hpp"

namespace vulpes::kernels {
namespace {

KOKKOS_INLINE_FUNCTION float gap(const GoalRules& goal, const BacktestAccount& b) {
  return goal.on ? goal_gap(goal, goal.growth, static_cast<float>(Kokkos::log(b.account.equity / b.goal_start))) : 0.0f;
}

}  // namespace

template <class Space>
BacktestBuffers<Space>::BacktestBuffers(const Space& space, const NetworkShape& shape, int count, int steps)
    : accounts(count),
      activations(space, shape, count, "vulpes::backtest"),
      base(allocate_zeroed<Matrix<float, Space>>(space, "vulpes::backtest::base", branches * shape.atoms,
                                                 activations.rows + column_padding)),
      q(allocate_zeroed<Matrix<float, Space>>(space, "vulpes::backtest::q", total_actions,
                                              activations.rows + column_padding)),
      state(allocate_zeroed<Vector<BacktestAccount, Space>>(space, "vulpes::backtest::state", count)),
      records(allocate_zeroed<Matrix<BacktestRecord, Space>>(space, "vulpes::backtest::records", steps, count)) {}

template <class Space>
void begin_backtest(const Space& space, const BacktestArguments<Space>& arguments,
                    const BacktestBuffers<Space>& buffers) {
  const StateVector state = StateVector::of(arguments.table, arguments.shape, arguments.window);
  const GoalRules goal = arguments.goal;
  const BacktestAccount* accounts = buffers.state.data();
  float* states = buffers.activations.input.data();
  Kokkos::parallel_for(
      "vulpes::backtest::begin", range(space, buffers.accounts), KOKKOS_LAMBDA(std::int64_t i) {
        state.write(accounts[i].account, accounts[i].bar, gap(goal, accounts[i]), states + i * state.width);
      });
}

template <class Space>
void backtest_step(const Space& space, const BacktestArguments<Space>& arguments,
                   const BacktestBuffers<Space>& buffers) {
  using T = Tile<Space, float>;
  using Value = typename T::Value;
  const Activations<Space, float>& a = buffers.activations;
  const ActionValues<float, Value> values{arguments.shape, arguments.support,     columns(a.logits),
                                          arguments.bias,  columns(buffers.base), columns(buffers.q)};
  const StateVector state = StateVector::of(arguments.table, arguments.shape, arguments.window);
  const market::AccountRules rules = arguments.rules;
  const GoalRules goal = arguments.goal;
  const std::uint32_t window = arguments.window;
  BacktestAccount* accounts = buffers.state.data();
  BacktestRecord* records = buffers.records.data();
  float* states = a.input.data();
  const int count = buffers.accounts;

  for_each_tile<float>(
      space, "vulpes::backtest::step", a.rows, KOKKOS_LAMBDA(const T& tile) {
        values.compute(tile);
        tile.items(1, [&](int, int row0) {
          Value best[branches];
          for (int d = 0; d < branches; ++d) best[d] = values.greedy(d, row0);
          for (int l = 0; l < lanes<Value>; ++l) {
            const int i = row0 + l;
            if (i >= count) return;
            BacktestAccount& b = accounts[i];
            if (b.bar + 1 >= b.end) continue;  // ended, or ruined
            const market::Action action{static_cast<std::uint8_t>(lane(best[0], l)),
                                        static_cast<std::uint8_t>(lane(best[1], l)),
                                        static_cast<std::uint8_t>(lane(best[2], l))};
            const market::Bar now = state.bars[b.bar], next = state.bars[b.bar + 1];
            const market::BarOutcome outcome = market::advance(b.account, rules, action, now, next);
            BacktestRecord& record = records[static_cast<std::int64_t>(b.steps) * count + i];
            record.log_growth = outcome.log_growth;
            record.equity = b.account.equity;
            record.exposure = market::exposure(b.account, next.close);
            record.fill_units = outcome.fill.filled ? outcome.fill.units : 0.0;
            record.fill_price = outcome.fill.price;
            record.fee = outcome.fill.filled ? outcome.fill.fee : 0.0;
            record.action[0] = action.exposure;
            record.action[1] = action.order;
            record.action[2] = action.urgency;
            ++b.steps;
            ++b.bar;
            if (outcome.ruined) b.end = b.bar;
            if (goal.on && b.steps % window == 0) b.goal_start = b.account.equity;
            state.write_account(b.account, b.bar, gap(goal, b), states + static_cast<std::int64_t>(i) * state.width);
          }
        });
        tile.sync();
        state.write_features(
            tile, count, [&](int i) { return accounts[i].bar; }, states);
      });
}

#define INSTANTIATE(S)                                                                               \
  template struct BacktestBuffers<S>;                                                                \
  template void begin_backtest<S>(const S&, const BacktestArguments<S>&, const BacktestBuffers<S>&); \
  template void backtest_step<S>(const S&, const BacktestArguments<S>&, const BacktestBuffers<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
