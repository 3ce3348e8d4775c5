// Exposure auxiliary loss: Q of the exposure branch is taught from the next bar's return, which every row of the replay
// reveals for all levels. Our own; the label is soft, because a hard one is only ever an end level or "stay".
//
//   label_e = softmax_e { [ e r - cost |e - e0| - risk (e sigma)^2 / 2 ] / (temperature sigma) }
//   L = - sum_e label_e log pi_e,  pi = softmax_e(Q_exposure / tau)          dL / dQ_e = (pi_e - label_e) / tau
//
// e: the branch's levels; e0: exposure before the decision; r: simple return of the next bar, close to close; the label
// is the Boltzmann distribution of the bar's mean-variance utility after costs. Shapes: one row, [9]. Flops: 9 (28 +
// two exponentials) + a logarithm.
#pragma once

#include "vulpes/kernels/formulas/categorical.hpp"
#include "vulpes/market/account.hpp"

namespace vulpes::kernels {

struct ExposureLabelRules {
  double cost = 0;         ///< of one unit of exposure traded: taker fee and half spread, as a fraction
  double sigma = 1;        ///< standard deviation of a bar's simple return, > 0
  double temperature = 1;  ///< in units of sigma, > 0
  double risk = 0;         ///< risk aversion
};

/// label_e of the 9 levels: `label(e)` returns and `set_label(e, v)` writes it. `r` and `e0` as above.
template <class V, class Label, class SetLabel>
KOKKOS_INLINE_FUNCTION void exposure_label(const ExposureLabelRules& rules, V r, V e0, const Label& label,
                                           const SetLabel& set_label) {
  using Real = scalar_of<V>;
  const double unit = 1.0 / (rules.temperature * rules.sigma);
  const V zero = V(Real(0)), cost = V(static_cast<Real>(rules.cost * unit));
  const V gain = r * V(static_cast<Real>(unit));
  const Real risk = static_cast<Real>(0.5 * rules.risk * rules.sigma * rules.sigma * unit);
  for (int a = 0; a < market::exposure_levels; ++a) {
    const Real e = static_cast<Real>(market::exposure_level(a));
    const V change = V(e) - e0;
    set_label(a, V(e) * gain - cost * select(change < zero, -change, change) - V(risk * e * e));
  }
  const auto scale = softmax<V>(market::exposure_levels, label, set_label);
  const V share = V(Real(1)) / scale.sum;
  for (int a = 0; a < market::exposure_levels; ++a) set_label(a, label(a) * share);
}

/// L and, through `policy(e)` and `set_policy(e, v)`, pi_e. `q(e)` returns Q(s, e).
template <class V, class Q, class Label, class Policy, class SetPolicy>
KOKKOS_INLINE_FUNCTION V label_cross_entropy(scalar_of<V> tau, const Q& q, const Label& label, const Policy& policy,
                                             const SetPolicy& set_policy) {
  using Real = scalar_of<V>;
  const V colder = V(Real(1) / tau);
  const auto scale = softmax<V>(
      market::exposure_levels, [&](int a) { return q(a) * colder; }, set_policy);
  const V log_sum = logarithm(scale.sum), share = V(Real(1)) / scale.sum;
  V cross_entropy = V(Real(0));
  for (int a = 0; a < market::exposure_levels; ++a) {
    cross_entropy += label(a) * (log_sum + (scale.largest - q(a) * colder));
    set_policy(a, policy(a) * share);
  }
  return cross_entropy;
}

}  // namespace vulpes::kernels
