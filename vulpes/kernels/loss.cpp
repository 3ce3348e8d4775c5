// Contract: reads the logits of three networks, writes every element of logit_gradient and rows_out for B rows
// (diversity_out: see LossArguments). No sum crosses rows. A NaN or Inf in a row's loss is in its whole gradient, where
// the guard sees it.
//
// Losses on Q(s, a) need the distribution of every action at s, not only of the one taken: its exponentials wait in
// logit_gradient until one pass over the atoms turns them into the gradient of all losses.
#include "vulpes/kernels/loss.hpp"

#include <cmath>

#include "vulpes/core/tile.hpp"
#include "vulpes/kernels/action_values.hpp"
#include "vulpes/kernels/formulas/cql.hpp"
#include "vulpes/kernels/formulas/losses.hpp"
#include "vulpes/kernels/formulas/projection.hpp"

namespace vulpes::kernels {
namespace {

enum BranchOutput : int {
  branch_loss,
  branch_c51,
  branch_mse,
  branch_kl,
  branch_delta,
  branch_q,
  branch_y,
  branch_cql,
  branch_auxiliary,
  branch_outputs
};
/// Items of branch_out after the branches' outputs: of each target or branch.
enum BranchItem : int {
  target_entropy = branches * branch_outputs,
  target_clipped = target_entropy + branches,
  next_share = target_clipped + branches,  ///< 1 / sum of exponentials
  chosen_largest = next_share + branches,
  chosen_sum = chosen_largest + branches,
  branch_items = chosen_sum + branches
};

/// What a step's position in the schedules makes of the losses.
template <class Real>
struct LossWeights {
  Real blend;
  Real auxiliary;  ///< with the multiplier
  Real spike;      ///< factor of the gradient
  bool nan;        ///< the loss becomes NaN
};

/// What a tile keeps from step to step, [items, rows]: global buffers on a host, scratch on a device.
template <class Real>
struct LossColumns {
  Columns<Real> next_base, base, next_q, next_action, target, next_prob, chosen, probability, q, q_slope, cql_slope,
      label, policy, branch_out;

  /// Calls f(columns, items) for each.
  template <class Self, class F>
  KOKKOS_INLINE_FUNCTION static void visit(Self& c, const NetworkShape& s, bool per_branch, const F& f) {
    const int all = branches * s.atoms;
    f(c.next_base, all);
    f(c.base, all);
    f(c.next_q, total_actions);
    f(c.next_action, branches);
    f(c.target, per_branch ? all : s.atoms);
    f(c.next_prob, all);
    f(c.chosen, all);
    f(c.probability, all);
    f(c.q, total_actions);
    f(c.q_slope, total_actions);
    f(c.cql_slope, total_actions);
    f(c.label, market::exposure_levels);
    f(c.policy, market::exposure_levels);
    f(c.branch_out, branch_items);
  }
  static int items(const NetworkShape& s, bool per_branch) {
    int sum = 0;
    LossColumns<Real> any;
    visit(any, s, per_branch, [&](Columns<Real>&, int n) { sum += n; });
    return sum;
  }
  /// The same columns in a tile's scratch; `first_row`: the tile's. (The address before the scratch that this gives for
  /// row 0 is never read.)
  KOKKOS_INLINE_FUNCTION static LossColumns in_scratch(const NetworkShape& s, bool per_branch, Real* scratch, int rows,
                                                       int first_row) {
    LossColumns c;
    visit(c, s, per_branch, [&](Columns<Real>& columns, int n) {
      columns = {scratch - first_row, rows};
      scratch += n * rows;
    });
    return c;
  }
};

/// The bodies of the launch's steps; `Value` is a row or a pack of rows.
template <class Real, class Value>
struct LossSteps {
  LossArguments<Real> in;
  LossColumns<Real> c;
  Columns<Real> gradient, rows_out;

  /// Of the network that chooses a* at s'.
  KOKKOS_INLINE_FUNCTION ActionValues<Real, Value> next() const {
    return {in.shape, in.support, in.next_select, in.select_bias, c.next_base, c.next_q};
  }
  /// Of the online network at s.
  KOKKOS_INLINE_FUNCTION ActionValues<Real, Value> now() const {
    return {in.shape, in.support, in.logits, in.bias, c.base, c.q};
  }

  /// Branches with losses on Q(s, a) of all their actions: the first so many.
  KOKKOS_INLINE_FUNCTION int q_branches() const { return in.cql > Real(0) ? branches : (in.auxiliary.on ? 1 : 0); }
  KOKKOS_INLINE_FUNCTION int targets() const { return in.per_branch ? branches : 1; }

  KOKKOS_INLINE_FUNCTION LossWeights<Real> weights() const {
    const auto iteration = static_cast<std::int64_t>(*in.iteration);
    double auxiliary = 0;
    if (in.auxiliary.on) {
      auxiliary = in.auxiliary.weight(iteration);
      if (in.auxiliary.multiplier != nullptr) auxiliary *= *in.auxiliary.multiplier;
    }
    return {static_cast<Real>(in.blend(iteration)), static_cast<Real>(auxiliary),
            static_cast<Real>(in.fault.spike(iteration)), in.fault.nan(iteration)};
  }

  KOKKOS_INLINE_FUNCTION Value column(Columns<Real> from, std::int64_t item, int row) const {
    return load<Value>(from.at(item, row));
  }
  KOKKOS_INLINE_FUNCTION void write(Columns<Real> to, std::int64_t item, int row, Value v) const {
    store<Value>(to.at(item, row), v);
  }

  /// The actions taken in branch d, as numbers.
  KOKKOS_INLINE_FUNCTION Value taken(int d, int row) const {
    Value action;
    for (int i = 0; i < lanes<Value>; ++i) set_lane(action, i, static_cast<Real>(*in.actions.at(d, row + i)));
    return action;
  }

  /// Logit `item` = d Z + z of the action taken at s.
  KOKKOS_INLINE_FUNCTION void chosen_logit(int item, int row) const {
    const int d = item / in.shape.atoms, z = item % in.shape.atoms;
    write(c.chosen, item, row, now().chosen_logit(d, z, taken(d, row), row));
  }
  /// Of a* at s' under the target network.
  KOKKOS_INLINE_FUNCTION void next_logit(int item, int row) const {
    const ActionValues<Real, Value> values{in.shape, in.support, in.next_target, in.target_bias, {}, {}};
    const int d = item / in.shape.atoms, z = item % in.shape.atoms;
    write(c.next_prob, item, row, values.chosen_logit(d, z, column(c.next_action, d, row), row));
  }

  /// Exponentials of branch d's logits into `to`; the softmax's scale.
  KOKKOS_INLINE_FUNCTION SoftmaxScale<Value> exponentials(Columns<Real> from, Columns<Real> to, int d, int row) const {
    const int first = d * in.shape.atoms;
    return softmax<Value>(
        in.shape.atoms, [&](int z) { return column(from, first + z, row); },
        [&](int z, Value e) { write(to, first + z, row, e); });
  }
  KOKKOS_INLINE_FUNCTION void choose_next(int d, int row) const { write(c.next_action, d, row, next().greedy(d, row)); }

  /// p_d(s', a*) but for the division.
  KOKKOS_INLINE_FUNCTION void next_exponentials(int d, int row) const {
    write(c.branch_out, next_share + d, row, Value(Real(1)) / exponentials(c.next_prob, c.next_prob, d, row).sum);
  }
  /// p_d(s', a*), or its mean over branches in place of branch 0's: the shift is common, so the mean of the projections
  /// is the projection of the mean.
  KOKKOS_INLINE_FUNCTION void next_distribution(int z, int row) const {
    const auto p = [&](int d) {
      return column(c.next_prob, d * in.shape.atoms + z, row) * column(c.branch_out, next_share + d, row);
    };
    if (in.per_branch) {
      for (int d = 0; d < branches; ++d) write(c.next_prob, d * in.shape.atoms + z, row, p(d));
    } else {
      Value sum = p(0);
      for (int d = 1; d < branches; ++d) sum += p(d);
      write(c.next_prob, z, row, sum * Value(Real(1) / branches));
    }
  }

  /// Projection of R + discount z under p, of target t: on a host row by row.
  KOKKOS_INLINE_FUNCTION void project_rows(int t, int row) const {
    const int atoms = in.shape.atoms;
    for (int z = 0; z < atoms; ++z) write(c.target, t * atoms + z, row, Value(Real(0)));
    for (int r = row; r < row + lanes<Value>; ++r) {
      const Real reward = in.rewards[r], discount = in.discounts[r];
      Real clipped = 0;
      for (int z = 0; z < atoms; ++z) {
        clipped += project_atom(in.support, *c.next_prob.at(t * atoms + z, r), reward + discount * in.support.atom(z),
                                c.target.at(t * atoms, r), c.target.stride);
      }
      *c.branch_out.at(target_clipped + t, r) = clipped;
    }
  }
  /// On a device an atom a thread: item t Z + j.
  KOKKOS_INLINE_FUNCTION void project_atoms(int item, int row) const {
    const int t = item / in.shape.atoms, j = item % in.shape.atoms;
    *c.target.at(item, row) = projected_mass(in.support, j, in.rewards[row], in.discounts[row],
                                             [&](int z) { return *c.next_prob.at(t * in.shape.atoms + z, row); });
  }
  KOKKOS_INLINE_FUNCTION void clipped_of_target(int t, int row) const {
    Real clipped = 0;
    for (int z = 0; z < in.shape.atoms; ++z) {
      const Real value = in.rewards[row] + in.discounts[row] * in.support.atom(z);
      if (AtomPosition<Real>::of(in.support, value).clipped) clipped += *c.next_prob.at(t * in.shape.atoms + z, row);
    }
    *c.branch_out.at(target_clipped + t, row) = clipped;
  }

  /// H(m) of target t.
  KOKKOS_INLINE_FUNCTION void entropy_of_target(int t, int row) const {
    const Value zero = Value(Real(0));
    Value entropy = zero;
    for (int z = 0; z < in.shape.atoms; ++z) {
      const Value m = column(c.target, t * in.shape.atoms + z, row);
      entropy -= select(zero < m, m * logarithm(m), zero);
    }
    write(c.branch_out, target_entropy + t, row, entropy);
  }

  /// The softmax of branch d's chosen logits but for the division.
  KOKKOS_INLINE_FUNCTION void chosen_exponentials(int d, int row) const {
    const auto scale = exponentials(c.chosen, c.probability, d, row);
    write(c.branch_out, chosen_largest + d, row, scale.largest);
    write(c.branch_out, chosen_sum + d, row, scale.sum);
  }

  /// Q and y of branch d, its losses.
  KOKKOS_INLINE_FUNCTION void branch(int d, int row, Real blend) const {
    const int atoms = in.shape.atoms, t = in.per_branch ? d : 0;
    const Value largest = column(c.branch_out, chosen_largest + d, row),
                total = column(c.branch_out, chosen_sum + d, row);
    const Value log_sum = logarithm(total), share = Value(Real(1)) / total;
    const Value zero = Value(Real(0));
    Value q = zero, y = zero, cross_entropy = zero;
    for (int z = 0; z < atoms; ++z) {
      const Value log_p = column(c.chosen, d * atoms + z, row) - largest - log_sum;
      const Value p = column(c.probability, d * atoms + z, row) * share;
      const Value m = column(c.target, t * atoms + z, row), atom = Value(in.support.atom(z));
      write(c.probability, d * atoms + z, row, p);
      q = multiply_add(p, atom, q);
      y = multiply_add(m, atom, y);
      cross_entropy = multiply_add(-m, log_p, cross_entropy);
    }
    const Value entropy = blend > Real(0) ? column(c.branch_out, target_entropy + t, row) : zero;
    const Value error = q - y, squared = error * error, kl = cross_entropy - entropy;
    const auto out = [&](int output, Value v) { write(c.branch_out, d * branch_outputs + output, row, v); };
    out(branch_loss, Value(Real(1) - blend) * squared + Value(blend) * cross_entropy);
    out(branch_c51, cross_entropy);
    out(branch_mse, squared);
    out(branch_kl, kl);
    out(branch_q, q);
    out(branch_y, y);
    const Value magnitude = select(error < zero, -error, error);
    out(branch_delta, Value(Real(1) - blend) * magnitude + Value(blend) * larger(kl, zero));
  }

  /// Gradient of the branches' losses on atom `item` = d Z + z of the chosen action, into `chosen`.
  KOKKOS_INLINE_FUNCTION void chosen_gradient(int item, int row, Real blend) const {
    const int d = item / in.shape.atoms, z = item % in.shape.atoms, t = in.per_branch ? d : 0;
    const Value weight = load<Value>(in.weights + row) * Value(Real(1) / (static_cast<Real>(in.rows) * branches));
    const Value p = column(c.probability, item, row), m = column(c.target, t * in.shape.atoms + z, row);
    const Value mse =
        mse_gradient(p, Value(in.support.atom(z)), column(c.branch_out, d * branch_outputs + branch_q, row),
                     column(c.branch_out, d * branch_outputs + branch_y, row));
    write(c.chosen, item, row, weight * (Value(Real(1) - blend) * mse + Value(blend) * c51_gradient(p, m)));
  }

  /// Q(s, a) of one action; its atoms' exponentials into the gradient's place.
  KOKKOS_INLINE_FUNCTION void action_distribution(int action, int row) const {
    const int d = branch_of(action), first = (1 + action) * in.shape.atoms;
    Value weighted = Value(Real(0));
    const auto scale = softmax<Value>(
        in.shape.atoms,
        [&](int z) {
          return column(c.base, d * in.shape.atoms + z, row) + load<Value>(in.logits.at(first + z, row)) +
                 Value(in.bias[first + z]);
        },
        [&](int z, Value e) {
          weighted = multiply_add(e, Value(static_cast<Real>(z)), weighted);
          write(gradient, first + z, row, e);
        });
    const Value share = Value(Real(1)) / scale.sum;
    write(c.q, action, row, multiply_add(Value(in.support.spacing), weighted * share, Value(in.support.vmin)));
    write(c.q_slope, action, row, share);
  }

  /// Losses on Q of all actions of branch d. Leaves dLoss/dQ(s, a) / (sum of the action's exponentials) in q_slope.
  KOKKOS_INLINE_FUNCTION void losses_on_q(int d, int row, const LossWeights<Real>& w) const {
    const int first = first_action(d), count = actions_of(d);
    const bool conservative = in.cql > Real(0), labelled = in.auxiliary.on && d == 0;
    const auto q = [&](int a) { return column(c.q, first + a, row); };
    const auto slope = [&](int a) { return column(c.cql_slope, first + a, row); };
    if (conservative) {
      write(c.branch_out, d * branch_outputs + branch_cql, row,
            conservative_loss<Value>(count, q, taken(d, row), slope,
                                     [&](int a, Value v) { write(c.cql_slope, first + a, row, v); }));
    }
    if (labelled) {
      const auto label_of = [&](int a) { return column(c.label, a, row); };
      const auto policy_of = [&](int a) { return column(c.policy, a, row); };
      exposure_label<Value>(in.auxiliary.label, load<Value>(in.next_returns + row), load<Value>(in.exposures + row),
                            label_of, [&](int a, Value v) { write(c.label, a, row, v); });
      write(c.branch_out, d * branch_outputs + branch_auxiliary, row,
            label_cross_entropy<Value>(in.auxiliary.temperature, q, label_of, policy_of,
                                       [&](int a, Value v) { write(c.policy, a, row, v); }));
    }
    const Value cql = Value(in.cql / (static_cast<Real>(in.rows) * branches));
    const Value auxiliary = Value(w.auxiliary / (static_cast<Real>(in.rows) * in.auxiliary.temperature));
    for (int a = 0; a < count; ++a) {
      Value sum = conservative ? cql * slope(a) : Value(Real(0));
      if (labelled) sum = multiply_add(auxiliary, column(c.policy, a, row) - column(c.label, a, row), sum);
      write(c.q_slope, first + a, row, sum * column(c.q_slope, first + a, row));
    }
  }

  /// Gradient on atom z of branch d's actions before the dueling sum, for losses on Q of all actions and the one on the
  /// chosen action's distribution; then through it: dA_d[a] = g_d[a] - mean g_d. Returns sum_a g_d[a], the share of dV.
  KOKKOS_INLINE_FUNCTION Value spread_all_actions(int d, int z, int row, Value scale) const {
    const int first = in.shape.first_logit(d, 0) + z, count = actions_of(d);
    const Value own = column(c.chosen, d * in.shape.atoms + z, row), action = taken(d, row);
    const Value atom = Value(in.support.atom(z));
    Value sum = Value(Real(0));
    for (int a = 0; a < count; ++a) {
      const Value exponent = column(gradient, first + a * in.shape.atoms, row);
      const Value slope = column(c.q_slope, first_action(d) + a, row), q = column(c.q, first_action(d) + a, row);
      const Value g = multiply_add(slope, expectation_gradient(exponent, atom, q), is_action(action, a) * own);
      write(gradient, first + a * in.shape.atoms, row, g);
      sum += g;
    }
    const Value shift = sum * Value(Real(-1) / static_cast<Real>(count));
    for (int a = 0; a < count; ++a) {
      write(gradient, first + a * in.shape.atoms, row,
            scale * (column(gradient, first + a * in.shape.atoms, row) + shift));
    }
    return scale * sum;
  }

  /// The same for the chosen action alone: dV = g_d, dA_d[a] = g_d (1{a = a_d} - 1 / A_d).
  KOKKOS_INLINE_FUNCTION Value spread_chosen(int d, int z, int row, Value scale) const {
    const Value g = scale * column(c.chosen, d * in.shape.atoms + z, row);
    const Value others = g * Value(Real(-1) / static_cast<Real>(actions_of(d)));
    const Value action = taken(d, row);
    for (int a = 0; a < actions_of(d); ++a) {
      const Value index = Value(static_cast<Real>(a));
      const Value own = select(action < index, others, select(index < action, others, g + others));
      write(gradient, in.shape.first_logit(d, a) + z, row, own);
    }
    return g;
  }

  /// Gradient of all losses on atom z of V and all A.
  KOKKOS_INLINE_FUNCTION void spread(int z, int row, const LossWeights<Real>& w) const {
    const Value scale = Value(w.spike) * one_if_finite(column(rows_out, loss_out, row));
    Value sum = Value(Real(0));
    for (int d = 0; d < branches; ++d) {
      sum += d < q_branches() ? spread_all_actions(d, z, row, scale) : spread_chosen(d, z, row, scale);
    }
    write(gradient, z, row, sum);
  }

  /// Mean over branches of one of their outputs.
  KOKKOS_INLINE_FUNCTION Value branch_mean(int output, int row) const {
    Value sum = column(c.branch_out, output, row);
    for (int d = 1; d < branches; ++d) sum += column(c.branch_out, d * branch_outputs + output, row);
    return sum * Value(Real(1) / branches);
  }

  /// One of the row's figures into rows_out.
  KOKKOS_INLINE_FUNCTION void summarise(int output, int row, const LossWeights<Real>& w) const {
    const Value zero = Value(Real(0));
    switch (output) {
      case loss_out: {
        Value total = branch_mean(branch_loss, row) * load<Value>(in.weights + row);
        if (in.cql > Real(0)) total += Value(in.cql) * branch_mean(branch_cql, row);
        if (in.auxiliary.on) total += Value(w.auxiliary) * column(c.branch_out, branch_auxiliary, row);
        if (w.nan) total += Value(static_cast<Real>(NAN));
        return write(rows_out, loss_out, row, total);
      }
      case c51_out:
        return write(rows_out, c51_out, row, branch_mean(branch_c51, row));
      case mse_out:
        return write(rows_out, mse_out, row, branch_mean(branch_mse, row));
      case kl_out:
        return write(rows_out, kl_out, row, branch_mean(branch_kl, row));
      case delta_out:
        return write(rows_out, delta_out, row, branch_mean(branch_delta, row));
      case q_out:
        return write(rows_out, q_out, row, branch_mean(branch_q, row));
      case next_q_out: {
        Value sum = zero;
        for (int d = 0; d < branches; ++d) {
          Value best = column(c.next_q, first_action(d), row);
          for (int a = 1; a < actions_of(d); ++a) best = larger(column(c.next_q, first_action(d) + a, row), best);
          sum += best;
        }
        return write(rows_out, next_q_out, row, sum * Value(Real(1) / branches));
      }
      case clipped_out: {
        Value sum = column(c.branch_out, target_clipped, row);
        for (int t = 1; t < targets(); ++t) sum += column(c.branch_out, target_clipped + t, row);
        return write(rows_out, clipped_out, row, in.per_branch ? sum * Value(Real(1) / branches) : sum);
      }
      case cql_out:
        return write(rows_out, cql_out, row, in.cql > Real(0) ? branch_mean(branch_cql, row) : zero);
      case auxiliary_out:
        return write(rows_out, auxiliary_out, row,
                     in.auxiliary.on ? column(c.branch_out, branch_auxiliary, row) : zero);
      case diversity_out:
        if (!in.diversity) write(rows_out, diversity_out, row, zero);
    }
  }
};

/// What a look at a step shows of a device tile's scratch.
template <class Real, class T>
KOKKOS_INLINE_FUNCTION void copy_traced(const T& tile, const LossArguments<Real>& in, const LossColumns<Real>& from,
                                        const LossColumns<Real>& to) {
  const auto copy = [&](Columns<Real> a, Columns<Real> b, int items) {
    tile.items(items, [&](int i, int row) { *b.at(i, row) = *a.at(i, row); });
  };
  copy(from.next_q, to.next_q, total_actions);
  copy(from.next_action, to.next_action, branches);
  copy(from.target, to.target, (in.per_branch ? branches : 1) * in.shape.atoms);
  copy(from.q, to.q, total_actions);
  copy(from.label, to.label, market::exposure_levels);
  copy(from.policy, to.policy, market::exposure_levels);
}

/// The launch's body, its steps in order.
template <class Space, class Real>
struct LossBody {
  using T = Tile<Space, Real>;
  LossSteps<Real, typename T::Value> all;
  bool trace;

  KOKKOS_FUNCTION void operator()(const T& tile) const {
    auto steps = all;
    if constexpr (!is_host_space<Space>) {
      steps.c = LossColumns<Real>::in_scratch(all.in.shape, all.in.per_branch, tile.scratch(), T::rows,
                                              tile.index() * T::rows);
    }
    const int atoms = all.in.shape.atoms, atoms_of_branches = branches * atoms, targets = steps.targets(),
              q_branches = steps.q_branches();
    const int actions = q_branches == branches ? total_actions : q_branches * actions_of(0);
    const LossWeights<Real> weights = steps.weights();
    const auto next = steps.next(), now = steps.now();

    tile.items(atoms_of_branches, [&](int i, int row) { next.base_item(i, row); });
    if (q_branches > 0) tile.items(q_branches * atoms, [&](int i, int row) { now.base_item(i, row); });
    tile.items(atoms_of_branches, [&](int i, int row) { steps.chosen_logit(i, row); });
    tile.sync();
    tile.items(total_actions + actions + branches, [&](int i, int row) {  // at once, for more threads
      if (i < total_actions) {
        next.q_item(i, row);
      } else if (i < total_actions + actions) {
        steps.action_distribution(i - total_actions, row);
      } else {
        steps.chosen_exponentials(i - total_actions - actions, row);
      }
    });
    tile.sync();
    tile.items(branches + q_branches, [&](int i, int row) {
      if (i < branches) {
        steps.choose_next(i, row);
      } else {
        steps.losses_on_q(i - branches, row, weights);
      }
    });
    tile.sync();

    tile.items(atoms_of_branches, [&](int i, int row) { steps.next_logit(i, row); });
    tile.sync();
    tile.items(branches, [&](int d, int row) { steps.next_exponentials(d, row); });
    tile.sync();
    tile.items(atoms, [&](int z, int row) { steps.next_distribution(z, row); });
    tile.sync();
    if constexpr (is_host_space<Space>) {
      tile.items(targets, [&](int t, int row) { steps.project_rows(t, row); });
    } else {
      tile.items(targets * atoms, [&](int i, int row) { steps.project_atoms(i, row); });
      tile.items(targets, [&](int t, int row) { steps.clipped_of_target(t, row); });
    }
    tile.sync();
    if (weights.blend > Real(0)) {
      tile.items(targets, [&](int t, int row) { steps.entropy_of_target(t, row); });
      tile.sync();
    }

    tile.items(branches, [&](int d, int row) { steps.branch(d, row, weights.blend); });
    tile.sync();
    tile.items(atoms_of_branches, [&](int i, int row) { steps.chosen_gradient(i, row, weights.blend); });
    tile.items(row_outputs, [&](int k, int row) { steps.summarise(k, row, weights); });
    tile.sync();
    tile.items(atoms, [&](int z, int row) { steps.spread(z, row, weights); });
    if constexpr (!is_host_space<Space>) {
      if (trace) copy_traced(tile, steps.in, steps.c, all.c);
    }
  }
};

}  // namespace

template <class Space, class Real>
LossBuffers<Space, Real>::LossBuffers(const Space& space, const NetworkShape& s, int count, const std::string& label,
                                      bool keep)
    : rows(count), trace(keep) {
  const auto make = [&](const char* name, int items) {
    return allocate_zeroed<Matrix<Real, Space>>(space, label + "::" + name, items, count + column_padding);
  };
  logit_gradient = make("logit_gradient", s.logits());
  rows_out = make("rows_out", row_outputs);
  if (!is_host_space<Space> && !trace) return;
  next_base = make("next_base", branches * s.atoms);
  base = make("base", branches * s.atoms);
  next_q = make("next_q", total_actions);
  next_action = make("next_action", branches);
  target = make("target", branches * s.atoms);
  next_prob = make("next_prob", branches * s.atoms);
  chosen = make("chosen", branches * s.atoms);
  probability = make("probability", branches * s.atoms);
  q = make("q", total_actions);
  q_slope = make("q_slope", total_actions);
  cql_slope = make("cql_slope", total_actions);
  exposure_label = make("exposure_label", market::exposure_levels);
  exposure_policy = make("exposure_policy", market::exposure_levels);
  branch_out = make("branch_out", branch_items);
}

template <class Space, class Real>
void loss(const Space& space, const LossArguments<Real>& arguments, const LossBuffers<Space, Real>& b) {
  const LossColumns<Real> buffers{columns(b.next_base),       columns(b.base),        columns(b.next_q),
                                  columns(b.next_action),     columns(b.target),      columns(b.next_prob),
                                  columns(b.chosen),          columns(b.probability), columns(b.q),
                                  columns(b.q_slope),         columns(b.cql_slope),   columns(b.exposure_label),
                                  columns(b.exposure_policy), columns(b.branch_out)};
  for_each_tile<Real>(
      space, "vulpes::loss", arguments.rows, LossColumns<Real>::items(arguments.shape, arguments.per_branch),
      LossBody<Space, Real>{{arguments, buffers, columns(b.logit_gradient), columns(b.rows_out)}, b.trace});
}

#define INSTANTIATE(S)                                                                               \
  template struct LossBuffers<S, float>;                                                             \
  template struct LossBuffers<S, double>;                                                            \
  template void loss<S, float>(const S&, const LossArguments<float>&, const LossBuffers<S, float>&); \
  template void loss<S, double>(const S&, const LossArguments<double>&, const LossBuffers<S, double>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
