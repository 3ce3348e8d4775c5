// Projection of a shifted distribution onto the support (Bellemare, Dabney & Munos 2017, equation 7 and algorithm 1).
#pragma once

#include "vulpes/kernels/formulas/support.hpp"

namespace vulpes::kernels {

/// Where a value lies on the support: between atoms `lower` and `lower` + 1.
template <class Real>
struct AtomPosition {
  int lower;
  Real upper_share;  ///< of the mass, for the upper atom
  bool clipped;

  KOKKOS_INLINE_FUNCTION static AtomPosition of(const Support<Real>& support, Real value) {
    const Real last = static_cast<Real>(support.atoms - 1);
    const Real position = (value - support.vmin) / support.spacing;
    // Rounding may put an end atom a few ulp beyond the end: that is no clipping.
    const Real tolerance = Real(1e-4);
    const bool below = position<-tolerance, above = position> last + tolerance;
    const Real inside = position < Real(0) ? Real(0) : (position > last ? last : position);
    // A NaN compares false: its shares go to the first atoms as NaN, and the step is skipped.
    int lower = inside > Real(0) ? static_cast<int>(inside) : 0;
    if (lower > support.atoms - 2) lower = support.atoms - 2;
    return {lower, inside - static_cast<Real>(lower), below || above};
  }
};

/// Adds `mass` at value `target` to the distribution `m` (Z atoms, `stride` apart), split linearly between the two
/// atoms around it; beyond the ends all of it goes to the end atom. The two shares add up to `mass` exactly. Returns
/// the mass that was clipped.
template <class Real>
KOKKOS_INLINE_FUNCTION Real project_atom(const Support<Real>& support, Real mass, Real target, Real* m,
                                         std::int64_t stride) {
  const auto at = AtomPosition<Real>::of(support, target);
  const Real upper_share = mass * at.upper_share;
  m[at.lower * stride] += mass - upper_share;
  m[(at.lower + 1) * stride] += upper_share;
  return at.clipped ? mass : Real(0);
}

/// Atom j of the projection of reward + discount z, with probability mass(z) for atom z: the sum that `project_atom`
/// makes there, in the same order, for one thread an atom.
template <class Real, class Mass>
KOKKOS_INLINE_FUNCTION Real projected_mass(const Support<Real>& support, int j, Real reward, Real discount,
                                           const Mass& mass) {
  int first = 0, last = support.atoms - 1;
  if (discount > Real(0.1)) {
    // Positions grow with z by `discount`: only atoms whose image is within one spacing of j give anything, and one
    // more at either side for rounding. What lies beyond an end goes to the end atom.
    const Real origin = (reward + discount * support.vmin - support.vmin) / support.spacing;
    const Real low = (static_cast<Real>(j - 1) - origin) / discount - Real(1);
    const Real high = (static_cast<Real>(j + 1) - origin) / discount + Real(1);
    if (j > 0 && low > Real(0)) first = low < static_cast<Real>(support.atoms) ? static_cast<int>(low) : support.atoms;
    if (j < support.atoms - 1 && high < static_cast<Real>(last)) last = high < Real(0) ? -1 : static_cast<int>(high);
  }
  Real sum = 0;
  for (int z = first; z <= last; ++z) {
    const auto at = AtomPosition<Real>::of(support, reward + discount * support.atom(z));
    if (at.lower != j && at.lower + 1 != j) continue;
    const Real upper_share = mass(z) * at.upper_share;
    sum += at.lower == j ? mass(z) - upper_share : upper_share;
  }
  return sum;
}

}  // namespace vulpes::kernels
