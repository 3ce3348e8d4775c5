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
  branch_cql,
  branch_auxiliary,
  branch_outputs
};
/// Rows of branch_out after the branches' outputs: entropy of each target.
constexpr int target_entropy = branches * branch_outputs;

/// What a step's position in the schedules makes of the losses.
template <class Real>
struct LossWeights {
  Real blend;
  Real auxiliary;  ///< with the multiplier
  Real spike;      ///< factor of the gradient
  bool nan;        ///< the loss becomes NaN
};

/// The bodies of the launch's steps; `Value` is a row or a pack of rows.
template <class Real, class Value>
struct LossSteps {
  LossArguments<Real> in;
  ActionValues<Real, Value> next;  ///< of the network that chooses a* at s'
  ActionValues<Real, Value> now;   ///< of the online network at s
  Columns<Real> next_action, target, next_prob, chosen, q_slope, cql_slope, label, policy, branch_out, gradient,
      rows_out;

  /// Branches with losses on Q(s, a) of all their actions: the first so many.
  KOKKOS_INLINE_FUNCTION int q_branches() const { return in.cql > Real(0) ? branches : (in.auxiliary.on ? 1 : 0); }

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

  KOKKOS_INLINE_FUNCTION Value column(Columns<Real> c, std::int64_t item, int row) const {
    return load<Value>(c.at(item, row));
  }
  KOKKOS_INLINE_FUNCTION void write(Columns<Real> c, std::int64_t item, int row, Value v) const {
    store<Value>(c.at(item, row), v);
  }

  /// Logits of one chosen action of branch d into rows d Z ... of `out`.
  KOKKOS_INLINE_FUNCTION void chosen_logits(Columns<const Real> logits, const Real* bias, int d, Value action,
                                            Columns<Real> out, int row) const {
    const ActionValues<Real, Value> values{in.shape, in.support, logits, bias, {}, {}};
    for (int z = 0; z < in.shape.atoms; ++z)
      write(out, d * in.shape.atoms + z, row, values.chosen_logit(d, z, action, row));
  }

  /// The actions taken in branch d, as numbers.
  KOKKOS_INLINE_FUNCTION Value taken(int d, int row) const {
    Value action;
    for (int i = 0; i < lanes<Value>; ++i) set_lane(action, i, static_cast<Real>(*in.actions.at(d, row + i)));
    return action;
  }

  /// a*_d, and p_d(s', a*_d) under the target network.
  KOKKOS_INLINE_FUNCTION void next_distribution(int d, int row) const {
    const int atoms = in.shape.atoms;
    const Value best = next.greedy(d, row);
    write(next_action, d, row, best);
    chosen_logits(in.next_target, in.target_bias, d, best, next_prob, row);
    const auto scale = softmax<Value>(
        atoms, [&](int z) { return column(next_prob, d * atoms + z, row); },
        [&](int z, Value e) { write(next_prob, d * atoms + z, row, e); });
    const Value share = Value(Real(1)) / scale.sum;
    for (int z = 0; z < atoms; ++z) {
      write(next_prob, d * atoms + z, row, column(next_prob, d * atoms + z, row) * share);
    }
  }

  /// Projection of R + discount z under p (of one branch, or of their mean: the shift is common, so the mean of the
  /// projections is the projection of the mean).
  KOKKOS_INLINE_FUNCTION void project(int t, int row) const {
    const int atoms = in.shape.atoms;
    for (int z = 0; z < atoms; ++z) {
      if (!in.per_branch) {
        Value sum = column(next_prob, z, row);
        for (int d = 1; d < branches; ++d) sum += column(next_prob, d * atoms + z, row);
        write(next_prob, z, row, sum * Value(Real(1) / branches));
      }
      write(target, t * atoms + z, row, Value(Real(0)));
    }
    for (int r = row; r < row + lanes<Value>; ++r) {
      const Real reward = in.rewards[r], discount = in.discounts[r];
      Real clipped = 0;
      for (int z = 0; z < atoms; ++z) {
        clipped += project_atom(in.support, *next_prob.at(t * atoms + z, r), reward + discount * in.support.atom(z),
                                target.at(t * atoms, r), target.stride);
      }
      *rows_out.at(clipped_out, r) = t == 0 ? clipped : *rows_out.at(clipped_out, r) + clipped;
    }
  }

  /// H(m) of target t.
  KOKKOS_INLINE_FUNCTION void entropy_of_target(int t, int row) const {
    const Value zero = Value(Real(0));
    Value entropy = zero;
    for (int z = 0; z < in.shape.atoms; ++z) {
      const Value m = column(target, t * in.shape.atoms + z, row);
      entropy -= select(zero < m, m * logarithm(m), zero);
    }
    write(branch_out, target_entropy + t, row, entropy);
  }

  /// Loss of branch d and its gradient on the chosen action's logits, into `chosen`.
  KOKKOS_INLINE_FUNCTION void branch(int d, int row, Real blend) const {
    const int atoms = in.shape.atoms, t = in.per_branch ? d : 0;
    chosen_logits(in.logits, in.bias, d, taken(d, row), chosen, row);
    const Columns<Real> probability = next_prob;  // spent by the projection
    const auto scale = softmax<Value>(
        atoms, [&](int z) { return column(chosen, d * atoms + z, row); },
        [&](int z, Value e) { write(probability, d * atoms + z, row, e); });
    const Value log_sum = logarithm(scale.sum), share = Value(Real(1)) / scale.sum;
    const Value zero = Value(Real(0));
    Value q = zero, y = zero, cross_entropy = zero;
    for (int z = 0; z < atoms; ++z) {
      const Value log_p = column(chosen, d * atoms + z, row) - scale.largest - log_sum;
      const Value p = column(probability, d * atoms + z, row) * share;
      const Value m = column(target, t * atoms + z, row), atom = Value(in.support.atom(z));
      write(probability, d * atoms + z, row, p);
      q += p * atom;
      y += m * atom;
      cross_entropy -= m * log_p;
    }
    const Value entropy = blend > Real(0) ? column(branch_out, target_entropy + t, row) : zero;
    const Value error = q - y;
    const Value weight = load<Value>(in.weights + row) * Value(Real(1) / (static_cast<Real>(in.rows) * branches));
    for (int z = 0; z < atoms; ++z) {
      const Value p = column(probability, d * atoms + z, row);
      const Value m = column(target, t * atoms + z, row);
      const Value mse = mse_gradient(p, Value(in.support.atom(z)), q, y);
      const Value c51 = c51_gradient(p, m);
      write(chosen, d * atoms + z, row, weight * (Value(Real(1) - blend) * mse + Value(blend) * c51));
    }
    const Value squared = error * error;
    const Value kl = cross_entropy - entropy;
    write(branch_out, d * branch_outputs + branch_loss, row,
          Value(Real(1) - blend) * squared + Value(blend) * cross_entropy);
    write(branch_out, d * branch_outputs + branch_c51, row, cross_entropy);
    write(branch_out, d * branch_outputs + branch_mse, row, squared);
    write(branch_out, d * branch_outputs + branch_kl, row, kl);
    write(branch_out, d * branch_outputs + branch_q, row, q);
    const Value magnitude = select(error < zero, -error, error);
    write(branch_out, d * branch_outputs + branch_delta, row,
          Value(Real(1) - blend) * magnitude + Value(blend) * larger(kl, zero));
  }

  /// Q(s, a) of one action; its atoms' exponentials into the gradient's place.
  KOKKOS_INLINE_FUNCTION void action_distribution(int action, int row) const {
    const int d = branch_of(action), first = (1 + action) * in.shape.atoms;
    Value weighted = Value(Real(0));
    const auto scale = softmax<Value>(
        in.shape.atoms,
        [&](int z) {
          return column(now.base, d * in.shape.atoms + z, row) + load<Value>(in.logits.at(first + z, row)) +
                 Value(in.bias[first + z]);
        },
        [&](int z, Value e) {
          weighted += e * Value(static_cast<Real>(z));
          write(gradient, first + z, row, e);
        });
    const Value share = Value(Real(1)) / scale.sum;
    write(now.q, action, row, Value(in.support.vmin) + Value(in.support.spacing) * (weighted * share));
    write(q_slope, action, row, share);
  }

  /// Losses on Q of all actions of branch d. Leaves dLoss/dQ(s, a) / (sum of the action's exponentials) in q_slope.
  KOKKOS_INLINE_FUNCTION void losses_on_q(int d, int row, const LossWeights<Real>& w) const {
    const int first = first_action(d), count = actions_of(d);
    const bool conservative = in.cql > Real(0), labelled = in.auxiliary.on && d == 0;
    const auto q = [&](int a) { return column(now.q, first + a, row); };
    const auto slope = [&](int a) { return column(cql_slope, first + a, row); };
    if (conservative) {
      write(branch_out, d * branch_outputs + branch_cql, row,
            conservative_loss<Value>(count, q, taken(d, row), slope,
                                     [&](int a, Value v) { write(cql_slope, first + a, row, v); }));
    }
    if (labelled) {
      const auto label_of = [&](int a) { return column(label, a, row); };
      const auto policy_of = [&](int a) { return column(policy, a, row); };
      exposure_label<Value>(in.auxiliary.label, load<Value>(in.next_returns + row), load<Value>(in.exposures + row),
                            label_of, [&](int a, Value v) { write(label, a, row, v); });
      write(branch_out, d * branch_outputs + branch_auxiliary, row,
            label_cross_entropy<Value>(in.auxiliary.temperature, q, label_of, policy_of,
                                       [&](int a, Value v) { write(policy, a, row, v); }));
    }
    const Value cql = Value(in.cql / (static_cast<Real>(in.rows) * branches));
    const Value auxiliary = Value(w.auxiliary / (static_cast<Real>(in.rows) * in.auxiliary.temperature));
    for (int a = 0; a < count; ++a) {
      Value sum = conservative ? cql * slope(a) : Value(Real(0));
      if (labelled) sum += auxiliary * (column(policy, a, row) - column(label, a, row));
      write(q_slope, first + a, row, sum * column(q_slope, first + a, row));
    }
  }

  /// Gradient on atom z of branch d's actions before the dueling sum, for losses on Q of all actions and the one on the
  /// chosen action's distribution; then through it: dA_d[a] = g_d[a] - mean g_d. Returns sum_a g_d[a], the share of dV.
  KOKKOS_INLINE_FUNCTION Value spread_all_actions(int d, int z, int row, Value scale) const {
    const int first = in.shape.first_logit(d, 0) + z, count = actions_of(d);
    const Value own = column(chosen, d * in.shape.atoms + z, row), action = taken(d, row);
    const Value atom = Value(in.support.atom(z));
    Value sum = Value(Real(0));
    for (int a = 0; a < count; ++a) {
      const Value exponent = column(gradient, first + a * in.shape.atoms, row);
      const Value slope = column(q_slope, first_action(d) + a, row), q = column(now.q, first_action(d) + a, row);
      const Value g = slope * expectation_gradient(exponent, atom, q) + is_action(action, a) * own;
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
    const Value g = scale * column(chosen, d * in.shape.atoms + z, row);
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
    Value sum = column(branch_out, output, row);
    for (int d = 1; d < branches; ++d) sum += column(branch_out, d * branch_outputs + output, row);
    return sum * Value(Real(1) / branches);
  }

  /// One of the row's figures into rows_out.
  KOKKOS_INLINE_FUNCTION void summarise(int output, int row, const LossWeights<Real>& w) const {
    const Value zero = Value(Real(0));
    switch (output) {
      case loss_out: {
        Value total = branch_mean(branch_loss, row) * load<Value>(in.weights + row);
        if (in.cql > Real(0)) total += Value(in.cql) * branch_mean(branch_cql, row);
        if (in.auxiliary.on) total += Value(w.auxiliary) * column(branch_out, branch_auxiliary, row);
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
          Value best = column(next.q, first_action(d), row);
          for (int a = 1; a < actions_of(d); ++a) best = larger(column(next.q, first_action(d) + a, row), best);
          sum += best;
        }
        return write(rows_out, next_q_out, row, sum * Value(Real(1) / branches));
      }
      case clipped_out:
        if (in.per_branch)
          write(rows_out, clipped_out, row, column(rows_out, clipped_out, row) * Value(Real(1) / branches));
        return;
      case cql_out:
        return write(rows_out, cql_out, row, in.cql > Real(0) ? branch_mean(branch_cql, row) : zero);
      case auxiliary_out:
        return write(rows_out, auxiliary_out, row, in.auxiliary.on ? column(branch_out, branch_auxiliary, row) : zero);
      case diversity_out:
        if (!in.diversity) write(rows_out, diversity_out, row, zero);
    }
  }
};

}  // namespace

template <class Space, class Real>
LossBuffers<Space, Real>::LossBuffers(const Space& space, const NetworkShape& s, int count, const std::string& label)
    : rows(count) {
  const auto make = [&](const char* name, int items) {
    return allocate_zeroed<Matrix<Real, Space>>(space, label + "::" + name, items, count + column_padding);
  };
  base = make("base", branches * s.atoms);
  next_q = make("next_q", total_actions);
  next_action = make("next_action", branches);
  target = make("target", branches * s.atoms);
  next_prob = make("next_prob", branches * s.atoms);
  chosen = make("chosen", branches * s.atoms);
  q = make("q", total_actions);
  q_slope = make("q_slope", total_actions);
  cql_slope = make("cql_slope", total_actions);
  exposure_label = make("exposure_label", market::exposure_levels);
  exposure_policy = make("exposure_policy", market::exposure_levels);
  branch_out = make("branch_out", branches * (branch_outputs + 1));
  logit_gradient = make("logit_gradient", s.logits());
  rows_out = make("rows_out", row_outputs);
}

template <class Space, class Real>
void loss(const Space& space, const LossArguments<Real>& arguments, const LossBuffers<Space, Real>& b) {
  using T = Tile<Space, Real>;
  const LossArguments<Real>& in = arguments;
  const LossSteps<Real, typename T::Value> steps{
      in,
      {in.shape, in.support, in.next_select, in.select_bias, columns(b.base), columns(b.next_q)},
      {in.shape, in.support, in.logits, in.bias, columns(b.base), columns(b.q)},
      columns(b.next_action),
      columns(b.target),
      columns(b.next_prob),
      columns(b.chosen),
      columns(b.q_slope),
      columns(b.cql_slope),
      columns(b.exposure_label),
      columns(b.exposure_policy),
      columns(b.branch_out),
      columns(b.logit_gradient),
      columns(b.rows_out)};
  for_each_tile<Real>(
      space, "vulpes::loss", in.rows, KOKKOS_LAMBDA(const T& tile) {
        const int atoms = steps.in.shape.atoms, q_branches = steps.q_branches();
        const LossWeights<Real> weights = steps.weights();
        steps.next.compute(tile);
        tile.items(branches, [&](int d, int row) { steps.next_distribution(d, row); });
        tile.sync();
        const int targets = steps.in.per_branch ? branches : 1;
        tile.items(1, [&](int, int row) {
          for (int t = 0; t < targets; ++t) {
            steps.project(t, row);
            if (weights.blend > Real(0)) steps.entropy_of_target(t, row);
          }
        });
        if (q_branches > 0) tile.items(q_branches * atoms, [&](int i, int row) { steps.now.base_item(i, row); });
        tile.sync();
        tile.items(branches, [&](int d, int row) { steps.branch(d, row, weights.blend); });
        if (q_branches > 0) {
          const int actions = q_branches == branches ? total_actions : actions_of(0);
          tile.items(actions, [&](int a, int row) { steps.action_distribution(a, row); });
          tile.sync();
          tile.items(q_branches, [&](int d, int row) { steps.losses_on_q(d, row, weights); });
        }
        tile.sync();
        tile.items(row_outputs, [&](int k, int row) { steps.summarise(k, row, weights); });
        tile.sync();
        tile.items(atoms, [&](int z, int row) { steps.spread(z, row, weights); });
      });
}

#define INSTANTIATE(S)                                                                               \
  template struct LossBuffers<S, float>;                                                             \
  template struct LossBuffers<S, double>;                                                            \
  template void loss<S, float>(const S&, const LossArguments<float>&, const LossBuffers<S, float>&); \
  template void loss<S, double>(const S&, const LossArguments<double>&, const LossBuffers<S, double>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
