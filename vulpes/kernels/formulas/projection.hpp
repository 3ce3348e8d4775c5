// Projection of a shifted distribution onto the support (Bellemare, Dabney & Munos 2017, equation 7 and algorithm 1).
#pragma once

#include "vulpes/kernels/formulas/support.hpp"

namespace vulpes::kernels {

/// Adds `mass` at value `target` to the distribution `m` (Z atoms, `stride` apart), split linearly between the two
/// atoms around it; beyond the ends all of it goes to the end atom. The two shares add up to `mass` exactly. Returns
/// the mass that was clipped.
template <class Real>
KOKKOS_INLINE_FUNCTION Real project_atom(const Support<Real>& support, Real mass, Real target, Real* m,
                                         std::int64_t stride) {
  const Real last = static_cast<Real>(support.atoms - 1);
  const Real position = (target - support.vmin) / support.spacing;
  // Rounding may put an end atom a few ulp beyond the end: that is no clipping.
  const Real tolerance = Real(1e-4);
  const bool below = position<-tolerance, above = position> last + tolerance;
  const Real inside = position < Real(0) ? Real(0) : (position > last ? last : position);
  // A NaN compares false: its shares go to the first atoms as NaN, and the step is skipped.
  int lower = inside > Real(0) ? static_cast<int>(inside) : 0;
  if (lower > support.atoms - 2) lower = support.atoms - 2;
  const Real upper_share = mass * (inside - static_cast<Real>(lower));
  m[lower * stride] += mass - upper_share;
  m[(lower + 1) * stride] += upper_share;
  return below || above ? mass : Real(0);
}

}  // namespace vulpes::kernels
