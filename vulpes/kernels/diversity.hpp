// Diversity loss on the heads' hidden activations and its gradient on them, one launch between the online network's
// forward pass and its backward pass.
#pragma once

#include "vulpes/kernels/loss.hpp"

namespace vulpes::kernels {

/// For the B = loss.rows first rows of the online network's activations `a`: writes each row's mean over pairs of
/// branches of cos^2(h_d, h_e), before its weight, to row diversity_out of loss.rows_out, and the gradient of
/// weight (1/B) sum_i of it with respect to the hidden activations to backward.hidden [B, heads * Hh]: 0 in the value
/// head's part, not yet through the ReLU. backward() adds to it (BackwardOptions::hidden_gradient_added). Any order
/// with loss(), which leaves diversity_out alone where LossArguments::diversity is set.
template <class Space, class Real>
void diversity(const Space& space, const NetworkShape& shape, Real weight, const Activations<Space, Real>& a,
               const LossBuffers<Space, Real>& loss, const BackwardBuffers<Space, Real>& backward);

}  // namespace vulpes::kernels
