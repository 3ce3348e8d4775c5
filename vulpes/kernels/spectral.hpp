// Spectral normalisation of all weight matrices in two launches, in place on the flat buffer.
#pragma once

#include "vulpes/kernels/network.hpp"
#include "vulpes/kernels/step_state.hpp"

namespace vulpes::kernels {

/// A strip of one matrix: columns in launch 1, rows in launch 2.
struct SpectralStrip {
  std::uint32_t offset;  ///< of the matrix in the parameter buffer
  std::uint32_t rows, columns;
  std::uint32_t begin, end;
  std::uint32_t u, v;    ///< offsets of the singular vectors in a half
  std::uint32_t matrix;  ///< index into sigma
  float bound;
};

/// Singular vectors and strips of the matrices that are bounded.
///
/// `vectors` has two halves, each with u of all matrices (left vectors, not normalised), then v (right vectors,
/// normalised). A step reads the half of adam_t's parity and writes the other one: a refused step, after which adam_t
/// stands still, leaves them as they were.
template <class Space>
struct SpectralNorm {
  Vector<SpectralStrip, Space> column_strips, row_strips;
  Vector<float, Space> vectors;
  int half = 0;                    ///< elements of a half
  Vector<float, Space> t;          ///< W' u, at the places of v
  Vector<float, Space> sigma;      ///< by matrix, of the last projection, before scaling
  std::vector<std::string> names;  ///< of the matrices
  bool enabled() const { return column_strips.extent(0) > 0; }

  SpectralNorm() = default;
  /// Bounds `trunk` for trunk, block and hidden matrices, `output` for output matrices; 0 leaves them alone.
  SpectralNorm(const Space& space, const Network& network, double trunk, double output);
  /// Starts both halves from 10 iterations that begin at each matrix's largest row; parameters are not changed.
  void start(const Space& space, const Vector<float, Space>& parameters);
};

/// One power iteration and the projection. No launch when nothing is bounded; nothing changes once training stopped.
template <class Space>
void spectral_norm(const Space& space, const SpectralNorm<Space>& norm, const Vector<float, Space>& parameters,
                   const StepStateRef<Space>& state);

}  // namespace vulpes::kernels
