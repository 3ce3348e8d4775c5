// Magnitude pruning: the mask of every weight matrix, renewed at the iterations the host chooses.
#pragma once

#include "vulpes/kernels/formulas/pruning.hpp"
#include "vulpes/kernels/optimise.hpp"

namespace vulpes::kernels {

/// Chunks of weight matrices and the histograms in which each matrix' threshold is found.
template <class Space>
struct Pruning {
  Vector<Chunk, Space> chunks;              ///< of weight matrices; `tensor` counts these matrices
  Vector<std::uint32_t, Space> elements;    ///< by matrix
  Vector<std::uint32_t, Space> histograms;  ///< [digits, matrices, bins]
  int matrices = 0;
  bool enabled() const { return matrices > 0; }

  Pruning() = default;
  Pruning(const Space& space, const ParameterLayout& layout);
};

/// Finds each matrix' threshold for the sparsity at `state.now.iteration` exactly, by a radix selection over the bits
/// of the magnitudes, writes the mask and zeroes what it covers: parameters, target, moments. Elements equal to the
/// threshold are all pruned. One memset and four launches, each reading the weights once; no-ops when the step was
/// refused. Goes between `optimise` and `finish_step`.
template <class Space>
void prune(const Space& space, const Pruning<Space>& pruning, const PruningRules& rules,
           const OptimiserBuffers<Space, float>& buffers, const StepStateRef<Space>& state);

}  // namespace vulpes::kernels
