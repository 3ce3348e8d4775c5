// Diversity loss: the branches' heads are kept from computing the same hidden features. Our own.
//
//   L = mean over pairs d < e of cos^2(h_d, h_e),  cos = h_d . h_e / (n_d n_e),  n = max(||h||, floor)
//   dL / dh_d = (2 / pairs) sum_{e != d} cos [ h_e / (n_d n_e) - cos h_d / n_d^2 ],  its last term only where n_d =
//   ||h_d||
//
// h_d: branch d's hidden activation of one row, [Hh]. Flops a row: 2 Hh (pairs + D) for the products, 2 Hh D D for the
// gradient.
#pragma once

#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

inline constexpr int branch_pairs = branches * (branches - 1) / 2;
inline constexpr double diversity_norm_floor = 1e-6;

/// L of a row, and its gradient as a linear map of the activations: dL / dh_d = sum_e share[d][e] h_e.
template <class Real>
struct DiversityTerms {
  Real loss;
  Real share[branches][branches];
};

/// From the dot products of the branches' activations: `product[d][e]`, d <= e, is h_d . h_e.
template <class Real>
KOKKOS_INLINE_FUNCTION DiversityTerms<Real> diversity_terms(const Real (&product)[branches][branches]) {
  const Real floor = static_cast<Real>(diversity_norm_floor), mean = Real(1) / branch_pairs;
  DiversityTerms<Real> t;
  t.loss = Real(0);
  Real inverse_norm[branches];
  bool floored[branches];
  for (int d = 0; d < branches; ++d) {
    const Real norm = Kokkos::sqrt(product[d][d]);
    floored[d] = norm < floor;
    inverse_norm[d] = Real(1) / (floored[d] ? floor : norm);
    t.share[d][d] = Real(0);
  }
  for (int d = 0; d < branches; ++d) {
    for (int e = d + 1; e < branches; ++e) {
      const Real inverse = inverse_norm[d] * inverse_norm[e], cosine = product[d][e] * inverse;
      const Real slope = Real(2) * mean * cosine;
      t.loss += mean * cosine * cosine;
      t.share[d][e] = t.share[e][d] = slope * inverse;
      if (!floored[d]) t.share[d][d] -= slope * cosine * inverse_norm[d] * inverse_norm[d];
      if (!floored[e]) t.share[e][e] -= slope * cosine * inverse_norm[e] * inverse_norm[e];
    }
  }
  return t;
}

}  // namespace vulpes::kernels
