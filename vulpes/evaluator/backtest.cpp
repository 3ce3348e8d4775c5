#include "vulpes/evaluator/backtest.hpp"

#include <algorithm>

#include "vulpes/core/transfer.hpp"

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
Backtester<Space>::Backtester(const Space& space, const Actor<Space>& actor, const kernels::MarketTable<Space>& table,
                              const market::AccountRules& rules, std::uint32_t window, std::vector<Walk> walks)
    : space_(space), network_(actor.network), walks_(std::move(walks)) {
  if (walks_.empty()) return;
  for (const Walk& w : walks_) steps_ = std::max(steps_, static_cast<int>(w.end - w.begin) - 1);
  const int count = static_cast<int>(walks_.size());
  buffers_ = kernels::BacktestBuffers<Space>(space_, network_.shape, count, steps_);
  end_ = decltype(end_)("vulpes::backtest::end", count);
  records_ = decltype(records_)(Kokkos::view_alloc(Kokkos::WithoutInitializing, "vulpes::backtest::host_records"),
                                steps_, count);
  std::vector<kernels::BacktestAccount> accounts(walks_.size());
  for (int i = 0; i < count; ++i) {
    accounts[i] = {};
    accounts[i].account = market::open_account(rules);
    accounts[i].bar = walks_[i].begin;
    accounts[i].end = walks_[i].end;
    accounts[i].goal_start = rules.initial_equity;
  }
  start_ = upload(space_, "vulpes::backtest::start", accounts);
  arguments_.shape = network_.shape;
  arguments_.support = actor.support;
  arguments_.rules = rules;
  arguments_.goal = actor.goal;
  arguments_.window = window;
  arguments_.table = table;
}

template <class Space>
std::vector<WalkResult> Backtester<Space>::run(const Vector<float, Space>& parameters, bool keep_states) {
  std::vector<WalkResult> results(walks_.size());
  if (walks_.empty()) return results;
  const int count = static_cast<int>(walks_.size()), width = network_.shape.state;
  kernels::BacktestArguments<Space> arguments = arguments_;
  arguments.bias = parameters.data() + network_.layout[network_.output_bias].offset;
  Kokkos::deep_copy(space_, buffers_.state, start_);
  kernels::begin_backtest(space_, arguments, buffers_);
  const auto bars = [space = space_, network = network_, arguments, buffers = buffers_,
                     weights = parameters.data()](int n) {
    for (int i = 0; i < n; ++i) {
      kernels::forward<Space, float>(space, network, weights, buffers.activations, buffers.activations.rows);
      kernels::backtest_step(space, arguments, buffers);
    }
  };
  if (keep_states) {
    for (int step = 0; step < steps_; ++step) {
      const auto input = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffers_.activations.input);
      for (int i = 0; i < count; ++i) {
        if (step + 1 < static_cast<int>(walks_[i].end - walks_[i].begin)) {
          results[i].states.insert(results[i].states.end(), &input(i, 0), &input(i, 0) + width);
        }
      }
      bars(1);
    }
  } else if (unrolled == 1) {
    bars(steps_);
  } else {
    Replayed<Space>& piece = pieces_[parameters.data()];
    for (int step = 0; step < steps_; step += unrolled) piece.run(space_, [&] { return [bars] { bars(unrolled); }; });
  }
  Kokkos::deep_copy(space_, end_, buffers_.state);
  Kokkos::deep_copy(space_, records_, buffers_.records);
  space_.fence("vulpes::backtest::results");
  for (int i = 0; i < count; ++i) {
    WalkResult& r = results[i];
    r.walk = walks_[i];
    r.start_equity = arguments.rules.initial_equity;
    const int length = static_cast<int>(walks_[i].end - walks_[i].begin) - 1, made = static_cast<int>(end_(i).steps);
    for (int step = 0; step < made; ++step) r.records.push_back(records_(step, i));
    if (keep_states) r.states.resize(r.records.size() * width);
    r.ruined = made < length;
  }
  return results;
}

template <class Space>
std::vector<WalkResult> backtest(const Space& space, const Actor<Space>& actor,
                                 const kernels::MarketTable<Space>& table, const market::AccountRules& rules,
                                 std::uint32_t window, const std::vector<Walk>& walks, bool keep_states) {
  return Backtester<Space>(space, actor, table, rules, window, walks).run(actor.parameters, keep_states);
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
  template class Backtester<S>;                                                                                      \
  template std::vector<WalkResult> backtest<S>(const S&, const Actor<S>&, const kernels::MarketTable<S>&,            \
                                               const market::AccountRules&, std::uint32_t, const std::vector<Walk>&, \
                                               bool);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::evaluator
