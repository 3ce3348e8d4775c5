// The layout of one flat parameter buffer: every weight matrix and bias of a network as a slice of it.
//
// Parameters, gradients, Adam moments and the target network are buffers of the same layout, so that the
// optimiser, clipping, averaging, checkpoints and reductions over ranks are each one pass over one buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vulpes/core/spaces.hpp"

namespace vulpes {

/// One tensor: a row-major matrix [rows, columns], or a vector with rows = 1.
struct TensorSlice {
  std::string name;
  std::size_t offset = 0;  ///< in elements, a multiple of ParameterLayout::alignment
  int rows = 0;
  int columns = 0;
  bool is_weight = false;  ///< a weight matrix: spectral norm, decay and pruning apply
  std::size_t size() const { return static_cast<std::size_t>(rows) * columns; }
};

class ParameterLayout {
 public:
  /// 128 bytes of float.
  static constexpr std::size_t alignment = 32;

  /// Appends a tensor and returns its index.
  int add(const std::string& name, int rows, int columns, bool is_weight);

  const std::vector<TensorSlice>& tensors() const { return tensors_; }
  const TensorSlice& operator[](int index) const { return tensors_[index]; }
  /// The tensor called `name`; throws std::out_of_range.
  const TensorSlice& find(const std::string& name) const;
  /// Elements of a buffer of this layout, padding included; padding stays zero.
  std::size_t size() const { return size_; }
  /// Elements without padding.
  std::size_t parameter_count() const;

 private:
  std::vector<TensorSlice> tensors_;
  std::size_t size_ = 0;
};

/// A piece of a tensor that one team of a pass over the buffer handles; no piece straddles two tensors.
struct Chunk {
  std::uint32_t begin, end;
  std::uint32_t tensor;
};

/// Cuts every tensor into chunks of at most `largest` elements.
std::vector<Chunk> make_chunks(const ParameterLayout& layout, std::size_t largest);

}  // namespace vulpes
