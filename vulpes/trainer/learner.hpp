// What training changes and a checkpoint holds: parameters and their companions, counters.
#pragma once

#include <vector>

#include "vulpes/core/transfer.hpp"
#include "vulpes/kernels/optimise.hpp"
#include "vulpes/kernels/spectral.hpp"

namespace vulpes::trainer {

/// All buffers share network.layout; weights live in `buffers.parameters` only.
template <class Space>
struct Learner {
  kernels::Network network;
  kernels::OptimiserBuffers<Space, float> buffers;
  kernels::OptimiserWork<Space> work;
  kernels::SpectralNorm<Space> spectral;
  kernels::StepStateRef<Space> state;

  /// Starts from `initial` (network.layout.size() floats): target equal to the parameters, moments zero, spectral
  /// vectors started.
  Learner(const Space& space, const kernels::NetworkShape& shape, const std::vector<float>& initial,
          double spectral_trunk, double spectral_output)
      : network(shape), work(space, network.layout), spectral(space, network, spectral_trunk, spectral_output) {
    const auto make = [&](const char* label) {
      return allocate_zeroed<Vector<float, Space>>(space, label, network.layout.size());
    };
    buffers.parameters = make("vulpes::learner::parameters");
    buffers.target = make("vulpes::learner::target");
    buffers.gradient = make("vulpes::learner::gradient");
    buffers.first_moment = make("vulpes::learner::first_moment");
    buffers.second_moment = make("vulpes::learner::second_moment");
    state = allocate_zeroed<kernels::StepStateRef<Space>>(space, "vulpes::learner::state");
    Kokkos::deep_copy(space, buffers.parameters, host_view(initial));
    Kokkos::deep_copy(space, buffers.target, host_view(initial));
    space.fence("vulpes::learner::start");
    spectral.start(space, buffers.parameters);
  }

  const float* output_bias(const Vector<float, Space>& parameters) const {
    return parameters.data() + network.layout[network.output_bias].offset;
  }
};

}  // namespace vulpes::trainer
