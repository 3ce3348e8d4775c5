// Contract: `draw` and `gather` change nothing but `draws` and `batch`; the same counters give the same batch.
#include "vulpes/kernels/sample.hpp"

#include <algorithm>

#include "vulpes/kernels/formulas/account_state.hpp"
#include "vulpes/kernels/formulas/importance_weight.hpp"
#include "vulpes/kernels/formulas/priority.hpp"
#include "vulpes/kernels/formulas/stratified_draw.hpp"

namespace vulpes::kernels {
namespace {

/// Where a transition begins and ends in the ring, its goal and its return.
struct Transition {
  std::uint32_t first, last, donor;
  float goal, reward, discount;
};

/// Writes one row of the batch: `donors`, `walk`, then `numbers` and `states`.
struct GatherRow {
  RingView ring;
  const market::Bar* bars;
  const float* features;
  int columns, width;
  std::int64_t count;
  GatherRules rules;
  const std::uint64_t* iteration;
  const std::uint32_t *rows, *leaves;
  const std::uint64_t* writes;
  std::uint32_t* smallest;
  float *out_states, *rewards, *discounts, *weights, *next_returns, *exposures, *goals;
  std::uint8_t *actions, *relabelled;
  std::uint32_t* donor_rows;

  KOKKOS_INLINE_FUNCTION Donors donors(std::int64_t k) const {
    return Donors::of(rules.hindsight, ring, *iteration, k, rows[k], writes[k]);
  }

  /// Follows the account from the drawn row over n bars or to the episode's end. `donor`: whose growth is the goal;
  /// no_row: the row's own goal.
  KOKKOS_INLINE_FUNCTION Transition walk(std::int64_t k, std::uint32_t donor) const {
    const std::uint32_t first = rows[k], capacity = ring.slots * ring.envs;
    const float goal = donor == no_row ? ring.rows[first].goal : ring.rows[donor].after.log_growth;
    const StoredAccount& start = ring.rows[first].before;
    FirstReach reach(rules.goal, goal, start.log_growth, start.drawdown);
    NStepReturn sum;
    std::uint32_t last = first;
    for (int j = 0; j < rules.n_step; ++j) {
      if (j > 0) last = capacity - last > ring.envs ? last + ring.envs : first % ring.envs;
      const ReplayRow& r = ring.rows[last];
      const float reward = bar_reward(rules.reward, r.after.log_growth - r.before.log_growth, r.after.exposure);
      sum.add(reward + reach.bonus(r.after.log_growth), rules.gamma);
      if (r.flags & ReplayRow::ended) {
        sum.end((r.flags & ReplayRow::terminal) != 0);
        break;
      }
    }
    return {first, last, donor, goal, sum.sum, sum.discount};
  }

  KOKKOS_INLINE_FUNCTION void numbers(std::int64_t k, const Transition& t) const {
    const std::uint64_t step = *iteration;
    if (k == 0) smallest[(step + 1) & 1] = largest_priority;  // for the next draw
    rewards[k] = t.reward;
    discounts[k] = t.discount;
    weights[k] = static_cast<float>(
        importance_weight(smallest[step & 1], leaves[k], rules.beta(static_cast<std::int64_t>(step))));
    const ReplayRow &first = ring.rows[t.first], &last = ring.rows[t.last];
    for (int d = 0; d < branches; ++d) actions[d * count + k] = first.action[d];
    own_inputs(first.before, first.bars_held_before, t.goal, state(k));
    own_inputs(last.after, last.bars_held_after, t.goal, state(count + k));
    if (next_returns) next_returns[k] = static_cast<float>(bars[first.bar + 1].close / bars[first.bar].close - 1.0);
    if (exposures) exposures[k] = first.before.exposure;
    if (goals) goals[k] = t.goal;
    if (relabelled) relabelled[k] = t.donor != no_row;
    if (donor_rows) donor_rows[k] = t.donor;
  }
  /// The account's own inputs and the padding after them.
  KOKKOS_INLINE_FUNCTION void own_inputs(const StoredAccount& account, int bars_held, float goal, float* to) const {
    account_inputs(account.exposure, account.unrealised, bars_held, account.drawdown,
                   goal_gap(rules.goal, goal, account.log_growth), static_cast<int>(rules.window), to + columns);
    for (int j = columns + account_input_count; j < width; ++j) to[j] = 0.0f;
  }

  KOKKOS_INLINE_FUNCTION float* state(std::int64_t row) const { return out_states + row * width; }
  KOKKOS_INLINE_FUNCTION const float* features_before(const Transition& t) const {
    return features + static_cast<std::int64_t>(ring.rows[t.first].bar) * columns;
  }
  KOKKOS_INLINE_FUNCTION const float* features_after(const Transition& t) const {
    return features + (static_cast<std::int64_t>(ring.rows[t.last].bar) + 1) * columns;
  }
};

/// On host cores: rows in blocks whose cache misses (ring, donors, then feature table) overlap.
inline void gather_block(const GatherRow& gather, std::int64_t begin, std::int64_t end) {
  constexpr int block = 16, line = 64 / sizeof(float);
  for (; begin < end; begin += block) {
    const int n = end - begin < block ? static_cast<int>(end - begin) : block;
    Donors donors[block];
    std::uint32_t donor[block];
    for (int i = 0; i < n; ++i) {
      donors[i] = gather.donors(begin + i);
      __builtin_prefetch(&gather.ring.rows[gather.rows[begin + i]]);
      if (donors[i].limit > 0) __builtin_prefetch(&gather.ring.rows[donors[i].probe(gather.ring)]);
    }
    for (int i = 0; i < n; ++i) {
      donor[i] = donors[i].choose(gather.ring);
      if (donor[i] != no_row) __builtin_prefetch(&gather.ring.rows[donor[i]].after);
    }
    Transition t[block];
    for (int i = 0; i < n; ++i) {
      t[i] = gather.walk(begin + i, donor[i]);
      if (gather.next_returns) __builtin_prefetch(&gather.bars[gather.ring.rows[t[i].first].bar]);
      for (int j = 0; j < gather.columns; j += line) {
        __builtin_prefetch(gather.features_before(t[i]) + j);
        __builtin_prefetch(gather.features_after(t[i]) + j);
      }
    }
    for (int i = 0; i < n; ++i) {
      const std::int64_t k = begin + i;
      std::copy_n(gather.features_before(t[i]), gather.columns, gather.state(k));
      std::copy_n(gather.features_after(t[i]), gather.columns, gather.state(gather.count + k));
      gather.numbers(k, t[i]);
    }
  }
}

}  // namespace

template <class Space>
Draws<Space>::Draws(const Space& space, int batch)
    : rows(allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::sample::rows", batch)),
      writes(allocate_zeroed<Vector<std::uint64_t, Space>>(space, "vulpes::sample::writes", batch)),
      leaves(allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::sample::leaves", batch)),
      smallest(allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::sample::smallest", 2)),
      units(allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::sample::units", batch)),
      targets(allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::sample::targets", batch)) {
  Kokkos::deep_copy(space, smallest, largest_priority);
}

template <class Space>
void draw(const Space& space, const ReplayRing<Space>& ring, RandomKey key, const std::uint64_t* iteration,
          const Draws<Space>& draws) {
  const TreeView tree = ring.tree.view;
  const RingView view = ring.view;
  std::uint32_t *rows = draws.rows.data(), *leaves = draws.leaves.data(), *smallest = draws.smallest.data();
  std::uint64_t* writes = draws.writes.data();
  const auto batch = static_cast<std::uint32_t>(draws.rows.extent(0));
  Kokkos::parallel_for(
      "vulpes::sample::draw", range(space, batch), KOKKOS_LAMBDA(std::int64_t k) {
        const std::uint64_t step = *iteration;
        const std::uint32_t word = random_words(key, Purpose::replay_sample, step, static_cast<std::uint32_t>(k))[0];
        const std::uint64_t total = tree.total();
        const std::uint32_t row =
            total > 0 ? tree.find(stratified_target(static_cast<std::uint32_t>(k), word, total, batch)) : 0u;
        const std::uint32_t leaf = tree.leaves[row];
        rows[k] = row;
        leaves[k] = leaf;
        writes[k] = leaf > 0 ? view.write_of(row, view.cursor[0]) : RingView::no_write;
        std::uint32_t& least = smallest[step & 1];
        if (leaf < Kokkos::atomic_load(&least)) Kokkos::atomic_min(&least, leaf);  // most rows need no atomic
      });
}

template <class Space>
void gather(const Space& space, const ReplayRing<Space>& ring, const MarketTable<Space>& table,
            const GatherRules& rules, const std::uint64_t* iteration, const Draws<Space>& draws,
            const Batch<Space>& batch) {
  const auto count = static_cast<std::int64_t>(draws.rows.extent(0));
  const GatherRow gather_row{ring.view,
                             table.bars.data(),
                             table.features.data(),
                             table.feature_columns,
                             static_cast<int>(batch.states.extent(1)),
                             count,
                             rules,
                             iteration,
                             draws.rows.data(),
                             draws.leaves.data(),
                             draws.writes.data(),
                             draws.smallest.data(),
                             batch.states.data(),
                             batch.rewards.data(),
                             batch.discounts.data(),
                             batch.weights.data(),
                             batch.next_returns.data(),
                             batch.exposures.data(),
                             batch.goals.data(),
                             batch.actions.data(),
                             batch.relabelled.data(),
                             batch.donors.data()};
  if constexpr (is_host_space<Space>) {
    constexpr std::int64_t chunk = 64;
    Kokkos::parallel_for("vulpes::sample::gather", range(space, (count + chunk - 1) / chunk), [=](std::int64_t c) {
      gather_block(gather_row, c * chunk, (c + 1) * chunk < count ? (c + 1) * chunk : count);
    });
  } else {
    // A warp a row: its lanes copy neighbouring features.
    constexpr int rows_a_team = 8, lanes_a_row = 32;
    using Policy = Kokkos::TeamPolicy<Space>;
    using Member = typename Policy::member_type;
    const auto policy = Kokkos::Experimental::require(
        Policy(space, static_cast<int>((count + rows_a_team - 1) / rows_a_team), rows_a_team, lanes_a_row),
        Kokkos::Experimental::WorkItemProperty::HintLightWeight);
    Kokkos::parallel_for(
        "vulpes::sample::gather", policy, KOKKOS_LAMBDA(const Member& team) {
          const std::int64_t k = static_cast<std::int64_t>(team.league_rank()) * rows_a_team + team.team_rank();
          if (k >= count) return;
          const Transition t = gather_row.walk(k, gather_row.donors(k).choose(gather_row.ring));
          const float *before = gather_row.features_before(t), *after = gather_row.features_after(t);
          float *s = gather_row.state(k), *next = gather_row.state(count + k);
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, gather_row.columns), [&](int j) {
            s[j] = before[j];
            next[j] = after[j];
          });
          Kokkos::single(Kokkos::PerThread(team), [&] { gather_row.numbers(k, t); });
        });
  }
}

template <class Space>
void update_priorities(const Space& space, const ReplayRing<Space>& ring, const PriorityRules& rules,
                       const float* deltas, const std::uint32_t* skip, const Draws<Space>& draws,
                       const Kokkos::View<PriorityCounts, MemoryOf<Space>>& counts, const std::uint8_t* relabelled) {
  const RingView view = ring.view;
  const TreeView tree = ring.tree.view;
  const std::uint32_t* rows = draws.rows.data();
  const std::uint64_t* writes = draws.writes.data();
  std::uint32_t *units = draws.units.data(), *targets = draws.targets.data();
  PriorityCounts* c = counts.data();
  if (rules.relabelled_too) relabelled = nullptr;
  const auto count = static_cast<std::int64_t>(draws.rows.extent(0));
  Kokkos::parallel_for(
      "vulpes::sample::priorities", range(space, count), KOKKOS_LAMBDA(std::int64_t k) {
        if (skip && *skip) return;
        if (relabelled && relabelled[k]) {
          targets[k] = no_row;
          return;
        }
        const double delta = static_cast<double>(deltas[k]);
        const bool valid = delta >= 0.0;  // false for NaN
        const bool present = writes[k] != RingView::no_write && view.write_of(rows[k], view.cursor[0]) == writes[k];
        targets[k] = valid && present ? rows[k] : no_row;
        if (valid && present) tree.propose(rows[k], k);
        if (!valid) Kokkos::atomic_add(&c->rejected, std::uint64_t(1));
        if (!present) Kokkos::atomic_add(&c->dropped, std::uint64_t(1));
        bool saturated = false;
        units[k] = valid ? priority_units(raw_priority(delta, rules.epsilon, rules.alpha), saturated) : 0u;
        if (saturated) Kokkos::atomic_add(&c->saturated, std::uint64_t(1));
      });
  write_proposed<Space>(space, ring.tree, draws.targets, draws.units, skip);
}

#define INSTANTIATE(S)                                                                                     \
  template struct Draws<S>;                                                                                \
  template void draw<S>(const S&, const ReplayRing<S>&, RandomKey, const std::uint64_t*, const Draws<S>&); \
  template void gather<S>(const S&, const ReplayRing<S>&, const MarketTable<S>&, const GatherRules&,       \
                          const std::uint64_t*, const Draws<S>&, const Batch<S>&);                         \
  template void update_priorities<S>(const S&, const ReplayRing<S>&, const PriorityRules&, const float*,   \
                                     const std::uint32_t*, const Draws<S>&,                                \
                                     const Kokkos::View<PriorityCounts, MemoryOf<S>>&, const std::uint8_t*);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
