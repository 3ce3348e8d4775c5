// Contract: one launch advances every account by one bar and writes one slot of the ring; accounts do not interact, so
// the result does not depend on scheduling. Draws are keyed by the ring's slot count, not by the training iteration,
// which stands still during collection.
#include "vulpes/kernels/collect.hpp"

#include "vulpes/core/tile.hpp"
#include "vulpes/kernels/formulas/exploration.hpp"
#include "vulpes/kernels/state_vector.hpp"

namespace vulpes::kernels {
namespace {

/// The parts of CollectArguments that a kernel needs, as plain pointers.
struct EpisodeRules {
  RandomKey key;
  market::AccountRules rules;
  GoalRules goal;
  const market::Bar* bars;
  const std::uint32_t* segment_end;
  const StartInterval* starts;
  int start_intervals;
  std::uint32_t start_count, window, range_end;

  template <class Space>
  static EpisodeRules of(const CollectArguments<Space>& a) {
    return {a.key,
            a.rules,
            a.goal,
            a.table.bars.data(),
            a.table.segment_end.data(),
            a.starts.data(),
            static_cast<int>(a.starts.extent(0)),
            a.start_count,
            a.window,
            a.range_end};
  }

  /// What the account's network sees of its goal.
  KOKKOS_INLINE_FUNCTION float gap(const Environment& e) const {
    return goal.on ? goal_gap(goal, e.goal, static_cast<float>(market::log_growth(e.account))) : 0.0f;
  }

  /// A new episode at a random allowed bar; `first` ones get a random length.
  KOKKOS_INLINE_FUNCTION void begin_episode(Environment& e, std::uint32_t env, bool first) const {
    const auto words = random_words(key, Purpose::episode_start, e.episodes, env);
    const std::uint32_t draw = uniform_below(words[0], start_count);
    int low = 0, high = start_intervals - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (starts[middle].before <= draw)
        low = middle;
      else
        high = middle - 1;
    }
    e.bar = starts[low].begin + (draw - starts[low].before);
    const std::uint32_t length = first ? 1 + uniform_below(words[1], window) : window;
    // The decision at bar t is filled and marked in bar t + 1, which must be in the segment and in the range.
    const std::uint32_t stop = (segment_end[e.bar] < range_end ? segment_end[e.bar] : range_end) - 1;
    e.end = e.bar + length < stop ? e.bar + length : stop;
    e.offset = 0;
    e.goal = goal.on ? episode_goal(goal, uniform_float(random_words(key, Purpose::episode_goal, e.episodes, env)[0]))
                     : 0.0f;
    e.account = market::open_account(rules);
    ++e.episodes;
  }
};

KOKKOS_INLINE_FUNCTION StoredAccount stored(const market::Account& a, double close) {
  return {static_cast<float>(market::exposure(a, close)), static_cast<float>(market::unrealised_return(a, close)),
          static_cast<float>(market::drawdown(a)), static_cast<float>(market::log_growth(a))};
}

/// bars_held as a row stores it.
KOKKOS_INLINE_FUNCTION std::uint16_t stored_bars_held(std::int32_t bars) {
  return static_cast<std::uint16_t>(bars < 65535 ? bars : 65535);
}

}  // namespace

template <class Space>
CollectBuffers<Space>::CollectBuffers(const Space& space, const NetworkShape& shape, int envs)
    : activations(space, shape, envs, "vulpes::collect"),
      base(allocate_zeroed<Matrix<float, Space>>(space, "vulpes::collect::base", branches * shape.atoms,
                                                 activations.rows + column_padding)),
      q(allocate_zeroed<Matrix<float, Space>>(space, "vulpes::collect::q", total_actions,
                                              activations.rows + column_padding)),
      environments(allocate_zeroed<Vector<Environment, Space>>(space, "vulpes::collect::environments", envs)) {}

template <class Space>
void begin_episodes(const Space& space, const CollectArguments<Space>& arguments,
                    const CollectBuffers<Space>& buffers) {
  const EpisodeRules rules = EpisodeRules::of(arguments);
  Environment* environments = buffers.environments.data();
  Kokkos::parallel_for(
      "vulpes::collect::begin_episodes", range(space, static_cast<std::int64_t>(buffers.environments.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        environments[i].episodes = 0;
        rules.begin_episode(environments[i], static_cast<std::uint32_t>(i), true);
      });
  write_states(space, arguments, buffers);
}

template <class Space>
void write_states(const Space& space, const CollectArguments<Space>& arguments, const CollectBuffers<Space>& buffers) {
  const StateVector state = StateVector::of(arguments.table, arguments.shape, arguments.window);
  const EpisodeRules rules = EpisodeRules::of(arguments);
  const Environment* environments = buffers.environments.data();
  float* states = buffers.activations.input.data();
  Kokkos::parallel_for(
      "vulpes::collect::write_states", range(space, static_cast<std::int64_t>(buffers.environments.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        state.write(environments[i].account, environments[i].bar, rules.gap(environments[i]), states + i * state.width);
      });
}

template <class Space>
void act(const Space& space, const CollectArguments<Space>& arguments, const CollectBuffers<Space>& buffers,
         const ReplayRing<Space>& ring) {
  using T = Tile<Space, float>;
  using Value = typename T::Value;
  const Activations<Space, float>& a = buffers.activations;
  const ActionValues<float, Value> values{arguments.shape, arguments.support,     columns(a.logits),
                                          arguments.bias,  columns(buffers.base), columns(buffers.q)};
  const EpisodeRules rules = EpisodeRules::of(arguments);
  const Schedule epsilon_schedule = arguments.epsilon;
  const Exploration exploration = arguments.exploration;
  const float temperature = arguments.temperature;
  const std::uint64_t* iteration = arguments.iteration;
  const RingView view = ring.view;
  Environment* environments = buffers.environments.data();
  float* states = a.input.data();
  const StateVector state = StateVector::of(arguments.table, arguments.shape, arguments.window);
  const int envs = ring.envs;

  for_each_tile<float>(
      space, "vulpes::collect::act", a.rows, KOKKOS_LAMBDA(const T& tile) {
        values.compute(tile);
        const std::uint64_t slot_count = view.cursor[0];
        const float epsilon = static_cast<float>(epsilon_schedule(static_cast<std::int64_t>(*iteration)));
        tile.items(1, [&](int, int row0) {
          for (int i = row0; i < row0 + lanes<Value> && i < envs; ++i) {
            const std::uint32_t env = static_cast<std::uint32_t>(i);
            const auto explore = random_words(rules.key, Purpose::explore, slot_count, env);
            const auto other = random_words(rules.key, Purpose::explore_action, slot_count, env);
            int chosen[branches];
            for (int d = 0; d < branches; ++d) {
              const auto q = [&](int action) { return *values.q.at(first_action(d) + action, i); };
              int best = 0;
              for (int action = 1; action < actions_of(d); ++action) best = q(action) > q(best) ? action : best;
              chosen[d] = exploration == Exploration::epsilon
                              ? epsilon_greedy(best, actions_of(d), epsilon, explore[d], other[d])
                              : softmax_draw(actions_of(d), q(best), temperature, explore[d], q);
            }
            const market::Action action{static_cast<std::uint8_t>(chosen[0]), static_cast<std::uint8_t>(chosen[1]),
                                        static_cast<std::uint8_t>(chosen[2])};
            Environment& e = environments[i];
            const market::Bar now = rules.bars[e.bar], next = rules.bars[e.bar + 1];
            ReplayRow row{};
            row.bar = e.bar;
            for (int d = 0; d < branches; ++d) row.action[d] = static_cast<std::uint8_t>(chosen[d]);
            row.episode_offset = static_cast<std::uint16_t>(e.offset);
            row.goal = e.goal;
            row.bars_held_before = stored_bars_held(e.account.bars_held);
            row.before = stored(e.account, now.close);
            const market::BarOutcome outcome = market::advance(e.account, rules.rules, action, now, next);
            ++e.bar;
            ++e.offset;
            const bool truncated = !outcome.ruined && e.bar >= e.end;
            row.flags = outcome.ruined ? ReplayRow::terminal : (truncated ? ReplayRow::truncated : std::uint8_t(0));
            row.bars_held_after = stored_bars_held(e.account.bars_held);
            row.after = stored(e.account, next.close);
            view.rows[view.row(slot_count, env)] = row;
            if (i == 0) view.cursor[1] = slot_count + 1;
            if (outcome.ruined || truncated) rules.begin_episode(e, env, false);
            state.write_account(e.account, e.bar, rules.gap(e), states + static_cast<std::int64_t>(i) * state.width);
          }
        });
        tile.sync();
        state.write_features(
            tile, envs, [&](int i) { return environments[i].bar; }, states);
      });
}

#define INSTANTIATE(S)                                                                             \
  template struct CollectBuffers<S>;                                                               \
  template void begin_episodes<S>(const S&, const CollectArguments<S>&, const CollectBuffers<S>&); \
  template void write_states<S>(const S&, const CollectArguments<S>&, const CollectBuffers<S>&);   \
  template void act<S>(const S&, const CollectArguments<S>&, const CollectBuffers<S>&, const ReplayRing<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
