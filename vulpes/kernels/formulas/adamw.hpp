// AdamW with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), eps outside the root of the bias-corrected
// second moment (Kingma & Ba 2015, algorithm 1).
#pragma once

#include "vulpes/core/pack.hpp"

namespace vulpes::kernels {

/// Constants of one update, the same for every parameter.
template <class Real>
struct AdamWStep {
  Real beta1, beta2, epsilon;
  Real rate;         ///< learning rate of this step
  Real decay;        ///< rate * weight decay
  Real correction1;  ///< 1 / (1 - beta1^t)
  Real correction2;  ///< 1 / (1 - beta2^t)

  /// `t` counts accepted updates, from 1.
  KOKKOS_INLINE_FUNCTION static AdamWStep make(double beta1, double beta2, double epsilon, double rate,
                                               double weight_decay, double t) {
    return {static_cast<Real>(beta1),
            static_cast<Real>(beta2),
            static_cast<Real>(epsilon),
            static_cast<Real>(rate),
            static_cast<Real>(rate * weight_decay),
            static_cast<Real>(1.0 / (1.0 - Kokkos::pow(beta1, t))),
            static_cast<Real>(1.0 / (1.0 - Kokkos::pow(beta2, t)))};
  }
};

/// Updates parameter w and its moments m, v by gradient g (already clipped).
template <class Real>
KOKKOS_INLINE_FUNCTION void adamw(const AdamWStep<Real>& s, Real g, Real& w, Real& m, Real& v) {
  m = s.beta1 * m + (Real(1) - s.beta1) * g;
  v = s.beta2 * v + (Real(1) - s.beta2) * g * g;
  w = w - s.decay * w - s.rate * (m * s.correction1) / (Kokkos::sqrt(v * s.correction2) + s.epsilon);
}

}  // namespace vulpes::kernels
