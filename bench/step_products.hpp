// The matrix products of a training step alone, at the best rate that OpenBLAS reaches for each: the floor of a step.
//
// Operands are a second set of the step's own buffers, used in the step's order, so that each product finds in cache
// what it would find in a step without anything else.
#pragma once

#include <string>
#include <vector>

#include "vulpes/core/gemm.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::bench {

/// How a launch's products are run.
enum class Way { one_thread, rows, columns, openblas };
inline constexpr int ways = 4;
const char* name_of(Way way);

/// The products of one launch; no epilogues.
struct ProductLaunch {
  std::string label;
  ProductBatch<float> batch;
  double flops() const;
  Way best = Way::one_thread;
  double best_seconds = 0;
};

/// Host spaces only.
class StepProducts {
 public:
  StepProducts(const kernels::NetworkShape& shape, int batch);
  /// Times every way of every launch, interleaved, and keeps the one with the lowest median.
  void calibrate(int rounds);
  /// Runs all launches in order, each its best way; returns the seconds spent in them.
  double run() const;
  const std::vector<ProductLaunch>& launches() const { return launches_; }
  double flops() const;

 private:
  void add(const char* label, std::initializer_list<Product<float>> products);

  using Space = Kokkos::DefaultHostExecutionSpace;
  Space space_;
  kernels::Network network_;
  std::vector<float> parameters_, target_, gradient_;
  trainer::StepBuffers<Space> buffers_;
  std::vector<ProductLaunch> launches_;
};

}  // namespace vulpes::bench
