// What training changes and a checkpoint holds: parameters and their companions, counters.
#pragma once

#include <vector>

#include "vulpes/core/transfer.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/kernels/pruning.hpp"
#include "vulpes/kernels/spectral.hpp"

namespace vulpes::trainer {

/// Which companions of the parameters exist.
struct LearnerOptions {
  double spectral_trunk = 0, spectral_output = 0;  ///< bounds; 0: off
  bool pruning = false;
  bool snapshots = false;                                           ///< for rollbacks
  Precision forward = Precision::fp32, backward = Precision::fp32;  ///< of products
};

inline LearnerOptions learner_options(const io::Config& c) {
  return {c.optimiser.spectral_trunk, c.optimiser.spectral_output,  c.pruning.sparsity > 0,
          c.guard.patience > 0,       precision_of(c.gemm.forward), precision_of(c.gemm.backward)};
}

/// All buffers share network.layout; weights live in `buffers.parameters` only.
template <class Space>
struct Learner {
  kernels::Network network;
  kernels::OptimiserBuffers<Space, float> buffers;
  kernels::OptimiserWork<Space> work;
  kernels::SpectralNorm<Space> spectral;
  kernels::Pruning<Space> pruning;
  kernels::StepStateRef<Space> state;

  /// Starts from `initial` (network.layout.size() floats): target equal to the parameters, moments zero, spectral
  /// vectors started, nothing pruned, all of that the first snapshot.
  Learner(const Space& space, const kernels::NetworkShape& shape, const std::vector<float>& initial,
          const LearnerOptions& options)
      : network(shape),
        work(space, network.layout),
        spectral(space, network, options.spectral_trunk, options.spectral_output) {
    network.forward = options.forward;
    network.backward = options.backward;
    const auto size = network.layout.size();
    const auto make = [&](const char* label) { return allocate_zeroed<Vector<float, Space>>(space, label, size); };
    buffers.parameters = make("vulpes::learner::parameters");
    buffers.target = make("vulpes::learner::target");
    buffers.gradient = make("vulpes::learner::gradient");
    buffers.first_moment = make("vulpes::learner::first_moment");
    buffers.second_moment = make("vulpes::learner::second_moment");
    buffers.singular = spectral.vectors;
    const std::size_t words = size / kernels::mask_bits;
    const auto make_mask = [&](const char* label) {
      return allocate_zeroed<Vector<std::uint32_t, Space>>(space, label, words);
    };
    if (options.pruning) {
      buffers.mask = make_mask("vulpes::learner::mask");
      pruning = kernels::Pruning<Space>(space, network.layout);
    }
    state = allocate_zeroed<kernels::StepStateRef<Space>>(space, "vulpes::learner::state");
    Kokkos::deep_copy(space, buffers.parameters, host_view(initial));
    Kokkos::deep_copy(space, buffers.target, host_view(initial));
    space.fence("vulpes::learner::start");
    spectral.start(space, buffers.parameters);
    if (options.snapshots) {
      auto& s = buffers.snapshot;
      s.parameters = make("vulpes::learner::snapshot_parameters");
      s.target = make("vulpes::learner::snapshot_target");
      s.first_moment = make("vulpes::learner::snapshot_first_moment");
      s.second_moment = make("vulpes::learner::snapshot_second_moment");
      if (options.pruning) s.mask = make_mask("vulpes::learner::snapshot_mask");
      s.singular = allocate_zeroed<Vector<float, Space>>(space, "vulpes::learner::snapshot_singular", spectral.half);
      Kokkos::deep_copy(space, s.parameters, buffers.parameters);
      Kokkos::deep_copy(space, s.target, buffers.target);
      if (spectral.half > 0) {
        Kokkos::deep_copy(space, s.singular, Kokkos::subview(spectral.vectors, std::pair<int, int>(0, spectral.half)));
      }
      space.fence("vulpes::learner::snapshot");
    }
  }

  const float* output_bias(const Vector<float, Space>& parameters) const {
    return parameters.data() + network.layout[network.output_bias].offset;
  }

  /// Calls `v(name, view)` for every array that changes as training goes on, tensors of the layout first; `name` is
  /// that of its dataset in a checkpoint. Arrays of parts that are off are left out.
  template <class Tensors, class Arrays>
  void visit(const Tensors& tensors, const Arrays& arrays) const {
    tensors("training/online", buffers.parameters);
    tensors("training/target", buffers.target);
    tensors("training/first_moment", buffers.first_moment);
    tensors("training/second_moment", buffers.second_moment);
    const auto& s = buffers.snapshot;
    if (s.parameters.extent(0) > 0) {
      tensors("training/snapshot/online", s.parameters);
      tensors("training/snapshot/target", s.target);
      tensors("training/snapshot/first_moment", s.first_moment);
      tensors("training/snapshot/second_moment", s.second_moment);
      if (s.singular.extent(0) > 0) arrays("training/snapshot/singular_vectors", s.singular);
      if (s.mask.extent(0) > 0) arrays("training/snapshot/mask", s.mask);
    }
    if (buffers.mask.extent(0) > 0) arrays("training/mask", buffers.mask);
    if (buffers.singular.extent(0) > 0) arrays("training/singular_vectors", buffers.singular);
    arrays("training/state", state);
  }
};

}  // namespace vulpes::trainer
