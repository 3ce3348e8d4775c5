// Contract: reads the logits of three networks, writes every element of logit_gradient and rows_out for B rows. No sum
// crosses rows. A NaN or Inf in a logit that matters reaches rows_out and the gradient, where the guard sees it.
#include "vulpes/kernels/loss.hpp"

#include "vulpes/core/tile.hpp"
#include "vulpes/kernels/action_values.hpp"
#include "vulpes/kernels/formulas/losses.hpp"
#include "vulpes/kernels/formulas/projection.hpp"

namespace vulpes::kernels {
namespace {

enum BranchOutput : int { branch_loss, branch_c51, branch_mse, branch_kl, branch_delta, branch_q, branch_outputs };
/// Rows of branch_out after the branches' outputs: entropy of each target.
constexpr int target_entropy = branches * branch_outputs;

/// The bodies of the launch's steps; `Value` is a row or a pack of rows.
template <class Real, class Value>
struct LossSteps {
  LossArguments<Real> in;
  ActionValues<Real, Value> next;  ///< of the network that chooses a* at s'
  Columns<Real> next_action, target, next_prob, chosen, branch_out, gradient, rows_out;

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

  /// Spreads the chosen actions' gradients over V and all A: dV = sum_d g_d, dA_d[a] = g_d (1{a = a_d} - 1 / A_d).
  KOKKOS_INLINE_FUNCTION void spread(int z, int row) const {
    const int atoms = in.shape.atoms;
    Value sum = Value(Real(0));
    for (int d = 0; d < branches; ++d) {
      const Value g = column(chosen, d * atoms + z, row);
      sum += g;
      const Value others = g * Value(Real(-1) / static_cast<Real>(actions_of(d)));
      const Value action = taken(d, row);
      for (int a = 0; a < actions_of(d); ++a) {
        const Value index = Value(static_cast<Real>(a));
        const Value own = select(action < index, others, select(index < action, others, g + others));
        write(gradient, in.shape.first_logit(d, a) + z, row, own);
      }
    }
    write(gradient, z, row, sum);
  }

  KOKKOS_INLINE_FUNCTION void summarise(int row) const {
    Value sums[branch_outputs];
    const Value mean = Value(Real(1) / branches);
    for (int k = 0; k < branch_outputs; ++k) {
      sums[k] = column(branch_out, k, row);
      for (int d = 1; d < branches; ++d) sums[k] += column(branch_out, d * branch_outputs + k, row);
      sums[k] *= mean;
    }
    Value next_value = Value(Real(0));
    for (int d = 0; d < branches; ++d) {
      Value best = column(next.q, first_action(d), row);
      for (int a = 1; a < actions_of(d); ++a) best = larger(column(next.q, first_action(d) + a, row), best);
      next_value += best;
    }
    write(rows_out, loss_out, row, sums[branch_loss] * load<Value>(in.weights + row));
    write(rows_out, c51_out, row, sums[branch_c51]);
    write(rows_out, mse_out, row, sums[branch_mse]);
    write(rows_out, kl_out, row, sums[branch_kl]);
    write(rows_out, delta_out, row, sums[branch_delta]);
    write(rows_out, q_out, row, sums[branch_q]);
    write(rows_out, next_q_out, row, next_value * mean);
    if (in.per_branch) write(rows_out, clipped_out, row, column(rows_out, clipped_out, row) * mean);
  }
};

}  // namespace

template <class Space, class Real>
LossBuffers<Space, Real>::LossBuffers(const Space& space, const NetworkShape& s, int count, const std::string& label)
    : rows(count) {
  const auto make = [&](const char* name, int items) {
    return allocate_zeroed<Matrix<Real, Space>>(space, label + "::" + name, items, count + column_padding);
  };
  next_base = make("next_base", branches * s.atoms);
  next_q = make("next_q", total_actions);
  next_action = make("next_action", branches);
  target = make("target", branches * s.atoms);
  next_prob = make("next_prob", branches * s.atoms);
  chosen = make("chosen", branches * s.atoms);
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
      {in.shape, in.support, in.next_select, in.select_bias, columns(b.next_base), columns(b.next_q)},
      columns(b.next_action),
      columns(b.target),
      columns(b.next_prob),
      columns(b.chosen),
      columns(b.branch_out),
      columns(b.logit_gradient),
      columns(b.rows_out)};
  for_each_tile<Real>(
      space, "vulpes::loss", in.rows, KOKKOS_LAMBDA(const T& tile) {
        const int atoms = steps.in.shape.atoms;
        const Real blend = static_cast<Real>(steps.in.blend(static_cast<std::int64_t>(*steps.in.iteration)));
        steps.next.compute(tile);
        tile.items(branches, [&](int d, int row) { steps.next_distribution(d, row); });
        tile.sync();
        const int targets = steps.in.per_branch ? branches : 1;
        tile.items(1, [&](int, int row) {
          for (int t = 0; t < targets; ++t) {
            steps.project(t, row);
            if (blend > Real(0)) steps.entropy_of_target(t, row);
          }
        });
        tile.sync();
        tile.items(branches, [&](int d, int row) { steps.branch(d, row, blend); });
        tile.sync();
        tile.items(atoms, [&](int z, int row) { steps.spread(z, row); });
        tile.items(1, [&](int, int row) { steps.summarise(row); });
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
