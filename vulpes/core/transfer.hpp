// Whole arrays between host vectors and device memory, for set-up, files and results; never within a step.
#pragma once

#include <string>
#include <vector>

#include "vulpes/core/spaces.hpp"

namespace vulpes {

/// The vector's elements as a View; valid as long as the vector is.
template <class T>
auto host_view(const std::vector<T>& values) {
  return Kokkos::View<const T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
      values.data(), values.size());
}

/// A device copy of the vector. Waits for `space`, so that the vector may go.
template <class T, class Space>
Vector<T, Space> upload(const Space& space, const std::string& label, const std::vector<T>& values) {
  auto device = allocate<Vector<T, Space>>(space, label, values.size());
  if (!values.empty()) Kokkos::deep_copy(space, device, host_view(values));
  space.fence(label);
  return device;
}

/// A host copy of a one-dimensional device array, once all work on it is done.
template <class T, class... Properties>
std::vector<T> download(const Kokkos::View<T*, Properties...>& device) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), device);
  return {host.data(), host.data() + host.extent(0)};
}

}  // namespace vulpes
