// Spectral normalisation of all weight matrices in two launches, in place on the flat buffer.
#pragma once

#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels {

/// A strip of one matrix: columns in launch 1, rows in launch 2.
struct SpectralStrip {
  std::uint32_t offset;  ///< of the matrix in the parameter buffer
  std::uint32_t rows, columns;
  std::uint32_t begin, end;
  std::uint32_t u, v;    ///< offsets of the singular vectors
  std::uint32_t matrix;  ///< index into sigma
  float bound;
};

/// Singular vectors and strips of the matrices that are bounded.
template <class Space>
struct SpectralNorm {
  Vector<SpectralStrip, Space> column_strips, row_strips;
  Vector<float, Space> u;          ///< left vectors, not normalised
  Vector<float, Space> v;          ///< right vectors, normalised
  Vector<float, Space> t;          ///< W' u
  Vector<float, Space> sigma;      ///< by matrix, of the last projection, before scaling
  std::vector<std::string> names;  ///< of the matrices
  bool enabled() const { return column_strips.extent(0) > 0; }

  SpectralNorm() = default;
  /// Bounds `trunk` for trunk, block and hidden matrices, `output` for output matrices; 0 leaves them alone.
  SpectralNorm(const Space& space, const Network& network, double trunk, double output);
  /// Starts u and v from 10 iterations that begin at each matrix's largest row; parameters are not changed.
  void start(const Space& space, const Vector<float, Space>& parameters);
};

/// One power iteration and the projection. No launch when nothing is bounded.
template <class Space>
void spectral_norm(const Space& space, const SpectralNorm<Space>& norm, const Vector<float, Space>& parameters);

}  // namespace vulpes::kernels
