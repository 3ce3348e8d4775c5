// Contract: `draw` and `gather` change nothing but `draws` and `batch`; the same counters give the same batch.
#include "vulpes/kernels/sample.hpp"

#include "vulpes/kernels/formulas/account_state.hpp"
#include "vulpes/kernels/formulas/importance_weight.hpp"
#include "vulpes/kernels/formulas/priority.hpp"
#include "vulpes/kernels/formulas/stratified_draw.hpp"

namespace vulpes::kernels {
namespace {

/// Writes the state of a stored account at a bar.
KOKKOS_INLINE_FUNCTION void write_stored_state(const float* features, int columns, const StoredAccount& account, int bars_held,
                                               float goal_gap, int window, float* state, int width) {
  for (int j = 0; j < columns; ++j) state[j] = features[j];
  account_inputs(account.exposure, account.unrealised, bars_held, account.drawdown, goal_gap, window, state + columns);
  for (int j = columns + account_input_count; j < width; ++j) state[j] = 0.0f;
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
void draw(const Space& space, const ReplayRing<Space>& ring, RandomKey key, const std::uint64_t* iteration, const Draws<Space>& draws) {
  const TreeView tree = ring.tree.view;
  const RingView view = ring.view;
  std::uint32_t *rows = draws.rows.data(), *leaves = draws.leaves.data(), *smallest = draws.smallest.data();
  std::uint64_t* writes = draws.writes.data();
  const auto batch = static_cast<std::uint32_t>(draws.rows.extent(0));
  Kokkos::parallel_for(
      "vulpes::sample::draw", range(space, batch), KOKKOS_LAMBDA(std::int64_t k) {
        const std::uint64_t step = *iteration;
        const std::uint32_t word = random_words(key, Purpose::replay_sample, step, static_cast<std::uint32_t>(k))[0];
        const std::uint32_t row = tree.find(stratified_target(static_cast<std::uint32_t>(k), word, tree.total(), batch));
        rows[k] = row;
        leaves[k] = tree.leaves[row];
        writes[k] = view.write_of(row, view.cursor[0]);
        Kokkos::atomic_min(&smallest[step & 1], leaves[k]);
      });
}

template <class Space>
void gather(const Space& space, const ReplayRing<Space>& ring, const MarketTable<Space>& table, const GatherRules& rules,
            const std::uint64_t* iteration, const Draws<Space>& draws, const Batch<Space>& batch) {
  const RingView view = ring.view;
  const float* features = table.features.data();
  const int columns = table.feature_columns, width = static_cast<int>(batch.states.extent(1));
  const std::uint32_t *rows = draws.rows.data(), *leaves = draws.leaves.data();
  std::uint32_t* smallest = draws.smallest.data();
  const auto count = static_cast<std::int64_t>(draws.rows.extent(0));
  float *states = batch.states.data(), *rewards = batch.rewards.data(), *discounts = batch.discounts.data(),
        *weights = batch.weights.data();
  std::uint8_t* actions = batch.actions.data();
  Kokkos::parallel_for(
      "vulpes::sample::gather", range(space, count), KOKKOS_LAMBDA(std::int64_t k) {
        const std::uint64_t step = *iteration;
        if (k == 0) smallest[(step + 1) & 1] = largest_priority;  // for the next draw
        const std::uint32_t first = rows[k], env = first % view.envs;
        const ReplayRow row = view.rows[first];

        NStepReturn ret;
        std::uint32_t last = first;
        for (int j = 0; j < rules.n_step; ++j) {
          if (j > 0) last = last + view.envs < view.slots * view.envs ? last + view.envs : env;
          const ReplayRow& r = view.rows[last];
          ret.add(bar_reward(rules.reward, r.after.log_growth - r.before.log_growth, r.after.exposure), rules.gamma);
          if (r.flags & ReplayRow::ended) {
            ret.end((r.flags & ReplayRow::terminal) != 0);
            break;
          }
        }
        const ReplayRow& end = view.rows[last];
        rewards[k] = ret.sum;
        discounts[k] = ret.discount;
        weights[k] = static_cast<float>(
            importance_weight(smallest[step & 1], leaves[k], rules.beta(static_cast<std::int64_t>(step))));
        for (int d = 0; d < branches; ++d) actions[d * count + k] = row.action[d];
        write_stored_state(features + static_cast<std::int64_t>(row.bar) * columns, columns, row.before, row.bars_held_before, 0.0f,
                           static_cast<int>(rules.window), states + k * width, width);
        write_stored_state(features + (static_cast<std::int64_t>(end.bar) + 1) * columns, columns, end.after, end.bars_held_after,
                           0.0f, static_cast<int>(rules.window), states + (count + k) * width, width);
      });
}

template <class Space>
void update_priorities(const Space& space, const ReplayRing<Space>& ring, const PriorityRules& rules, const float* deltas,
                       const std::uint32_t* skip, const Draws<Space>& draws,
                       const Kokkos::View<PriorityCounts, MemoryOf<Space>>& counts) {
  const RingView view = ring.view;
  const std::uint32_t* rows = draws.rows.data();
  const std::uint64_t* writes = draws.writes.data();
  std::uint32_t *units = draws.units.data(), *targets = draws.targets.data();
  PriorityCounts* c = counts.data();
  const auto count = static_cast<std::int64_t>(draws.rows.extent(0));
  Kokkos::parallel_for(
      "vulpes::sample::priorities", range(space, count), KOKKOS_LAMBDA(std::int64_t k) {
        if (skip && *skip) return;
        const double delta = static_cast<double>(deltas[k]);
        const bool valid = delta >= 0.0;  // false for NaN
        const bool present = view.write_of(rows[k], view.cursor[0]) == writes[k];
        targets[k] = valid && present ? rows[k] : no_row;
        if (!valid) Kokkos::atomic_add(&c->rejected, std::uint64_t(1));
        if (!present) Kokkos::atomic_add(&c->dropped, std::uint64_t(1));
        bool saturated = false;
        units[k] = valid ? priority_units(raw_priority(delta, rules.epsilon, rules.alpha), saturated) : 0u;
        if (saturated) Kokkos::atomic_add(&c->saturated, std::uint64_t(1));
      });
  update<Space>(space, ring.tree, draws.targets, draws.units, skip);
}

#define INSTANTIATE(S)                                                                                                   \
  template struct Draws<S>;                                                                                              \
  template void draw<S>(const S&, const ReplayRing<S>&, RandomKey, const std::uint64_t*, const Draws<S>&);              \
  template void gather<S>(const S&, const ReplayRing<S>&, const MarketTable<S>&, const GatherRules&, const std::uint64_t*, \
                          const Draws<S>&, const Batch<S>&);                                                            \
  template void update_priorities<S>(const S&, const ReplayRing<S>&, const PriorityRules&, const float*,                \
                                     const std::uint32_t*, const Draws<S>&, const Kokkos::View<PriorityCounts, MemoryOf<S>>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
