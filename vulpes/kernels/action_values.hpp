// Q of every action from a network's logits: the steps that targets, collection and backtest have in common.
#pragma once

#include "vulpes/kernels/columns.hpp"
#include "vulpes/kernels/formulas/categorical.hpp"
#include "vulpes/kernels/formulas/dueling.hpp"
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

/// Reads logits [logits, rows] and their bias; writes `base` [D Z, rows] and `q` [A, rows], A = all branches' actions.
/// `compute` runs both steps on a tile (core/tile.hpp). Flops a row: about 5 Z A. Exponentials:
/// Z A.
template <class Real, class Value>
struct ActionValues {
  NetworkShape shape;
  Support<Real> support;
  Columns<const Real> logits;
  const Real* bias;
  Columns<Real> base, q;

  KOKKOS_INLINE_FUNCTION Value value_logit(int z, int row) const {
    return load<Value>(logits.at(z, row)) + Value(bias[z]);
  }

  KOKKOS_INLINE_FUNCTION void base_item(int item, int row) const {
    const int d = item / shape.atoms, z = item % shape.atoms, first = shape.first_logit(d, 0) + z;
    store<Value>(base.at(item, row),
                 dueling_base<Value>(value_logit(z, row), logits.at(first, row), logits.stride * shape.atoms,
                                     bias + first, shape.atoms, actions_of(d)));
  }

  KOKKOS_INLINE_FUNCTION void q_item(int action, int row) const {
    const int d = branch_of(action), first = (1 + action) * shape.atoms;
    store<Value>(q.at(action, row), expected_value<Value>(support, [&](int z) {
                   return load<Value>(base.at(d * shape.atoms + z, row)) + load<Value>(logits.at(first + z, row)) +
                          Value(bias[first + z]);
                 }));
  }

  /// Base and Q of a tile's rows; ends with a sync, so that every item may read them.
  template <class Tile>
  KOKKOS_INLINE_FUNCTION void compute(const Tile& tile) const {
    tile.items(branches * shape.atoms, [&](int i, int row) { base_item(i, row); });
    tile.sync();
    tile.items(total_actions, [&](int i, int row) { q_item(i, row); });
    tile.sync();
  }

  /// argmax_a Q_d, the first one on a tie.
  KOKKOS_INLINE_FUNCTION Value greedy(int d, int row) const {
    return argmax<Value>(actions_of(d), [&](int a) { return load<Value>(q.at(first_action(d) + a, row)); });
  }

  /// Logit of atom z of one chosen action of branch d.
  KOKKOS_INLINE_FUNCTION Value chosen_logit(int d, int z, Value action, int row) const {
    const int first = shape.first_logit(d, 0) + z;
    return dueling_chosen<Value>(value_logit(z, row), logits.at(first, row), logits.stride * shape.atoms, bias + first,
                                 shape.atoms, actions_of(d), action);
  }
};

}  // namespace vulpes::kernels
