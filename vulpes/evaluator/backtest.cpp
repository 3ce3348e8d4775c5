#include "vulpes/evaluator/backtest.hpp"

#include <algorithm>

namespace vulpes::evaluator {

std::vector<Walk> make_walks(std::size_t begin, std::size_t end, const std::vector<std::int32_t>& segments,
                             const std::vector<std::uint8_t>& usable, std::size_t longest) {
  std::vector<Walk> walks;
  for (std::size_t first = begin; first < end;) {
    if (!usable[first]) {
      ++first;
      continue;
    }
    std::size_t last = first;
    while (last + 1 < end && segments[last + 1] == segments[first] && (longest == 0 || last - first < longest)) ++last;
    if (last > first) walks.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last + 1)});
    const bool cut_by_length = last + 1 < end && segments[last + 1] == segments[first];
    first = cut_by_length ? last : last + 1;
  }
  return walks;
}

template <class Space>
std::vector<WalkResult> backtest(const Space& space, const Actor<Space>& actor,
                                 const kernels::MarketTable<Space>& table, const market::AccountRules& rules,
                                 std::uint32_t window, const std::vector<Walk>& walks, bool keep_states) {
  std::vector<WalkResult> results(walks.size());
  if (walks.empty()) return results;
  const int count = static_cast<int>(walks.size());
  int steps = 0;
  for (const Walk& w : walks) steps = std::max(steps, static_cast<int>(w.end - w.begin) - 1);

  const kernels::BacktestBuffers<Space> buffers(space, actor.network.shape, count, steps);
  const auto accounts = Kokkos::create_mirror_view(Kokkos::HostSpace(), buffers.state);
  for (int i = 0; i < count; ++i) {
    accounts(i) = {};
    accounts(i).account = market::open_account(rules);
    accounts(i).bar = walks[i].begin;
    accounts(i).end = walks[i].end;
    accounts(i).goal_start = rules.initial_equity;
  }
  Kokkos::deep_copy(space, buffers.state, accounts);
  kernels::BacktestArguments<Space> arguments;
  arguments.shape = actor.network.shape;
  arguments.support = actor.support;
  arguments.rules = rules;
  arguments.goal = actor.goal;
  arguments.window = window;
  arguments.bias = actor.parameters.data() + actor.network.layout[actor.network.output_bias].offset;
  arguments.table = table;
  kernels::begin_backtest(space, arguments, buffers);
  const int width = actor.network.shape.state;
  for (int step = 0; step < steps; ++step) {
    if (keep_states) {
      const auto input = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffers.activations.input);
      for (int i = 0; i < count; ++i) {
        if (step + 1 < static_cast<int>(walks[i].end - walks[i].begin)) {
          results[i].states.insert(results[i].states.end(), &input(i, 0), &input(i, 0) + width);
        }
      }
    }
    kernels::forward<Space, float>(space, actor.network, actor.parameters.data(), buffers.activations,
                                   buffers.activations.rows);
    kernels::backtest_step(space, arguments, buffers);
  }
  const auto records = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffers.records);
  for (int i = 0; i < count; ++i) {
    WalkResult& r = results[i];
    r.walk = walks[i];
    r.start_equity = rules.initial_equity;
    const int length = static_cast<int>(walks[i].end - walks[i].begin) - 1;
    for (int step = 0; step < length && records(step, i).valid; ++step) r.records.push_back(records(step, i));
    if (keep_states) r.states.resize(r.records.size() * width);
    r.ruined = static_cast<int>(r.records.size()) < length;
  }
  return results;
}

double mean_growth(const std::vector<WalkResult>& results) {
  double sum = 0;
  std::size_t count = 0;
  for (const WalkResult& r : results) {
    for (const auto& record : r.records) sum += record.log_growth;
    count += r.records.size();
  }
  return count ? sum / static_cast<double>(count) : 0.0;
}

#define INSTANTIATE(S)                                                                                               \
  template std::vector<WalkResult> backtest<S>(const S&, const Actor<S>&, const kernels::MarketTable<S>&,            \
                                               const market::AccountRules&, std::uint32_t, const std::vector<Walk>&, \
                                               bool);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::evaluator
