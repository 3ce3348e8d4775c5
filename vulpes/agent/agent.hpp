// The agent: a network with its parameters, and the file that holds all that is needed to act with it.
#pragma once

#include <string>
#include <vector>

#include "vulpes/core/random.hpp"
#include "vulpes/core/transfer.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/io/hdf5.hpp"
#include "vulpes/kernels/network.hpp"
#include "vulpes/market/features.hpp"

namespace vulpes::agent {

/// Width of the state: features, the account's own inputs, padding to a multiple of 8.
int state_width(int feature_columns);

kernels::NetworkShape network_shape(const io::NetworkConfig& config, int feature_columns);

/// Initial parameters in the layout of `network`: weights uniform in +-sqrt(6 / columns) before a ReLU (He et al.
/// 2015), a tenth of it for output layers, so that all actions begin nearly equal; biases 0. A pure function of the
/// key.
std::vector<float> initial_parameters(const kernels::Network& network, RandomKey key);

/// 64-bit FNV-1a of the parameters' bytes, as 16 hexadecimal digits.
std::string parameter_hash(const std::vector<float>& parameters);

/// What a policy saw while it was trained and chosen: enough to recognise these bars again.
struct SeenBars {
  double bar_seconds = 0;            ///< most frequent distance; 0: not recorded
  std::int64_t first = 0, last = 0;  ///< times of the earliest and the latest bar, ns
  std::vector<std::int64_t> time;    ///< of up to 256 of them, evenly spread; ns
  std::vector<double> close;         ///< of the same bars

  /// Of bars [begin, end).
  static SeenBars of(const market::Bars& bars, std::size_t begin, std::size_t end);
  /// True if `bars` hold some of these: most of the samples whose times occur have the same close.
  bool in(const market::Bars& bars) const;
};

/// All that is needed to act on new bars.
struct Policy {
  io::Config config;  ///< as the agent was trained
  kernels::NetworkShape shape;
  double vmin = 0, vmax = 0;
  double reward_scale = 0;
  std::vector<std::string> feature_names;
  market::Normaliser normaliser;
  std::vector<float> parameters;  ///< flat, in the layout of Network(shape)
  std::int64_t step = 0;          ///< updates it is the result of
  int fold = 1;
  double score = 0;  ///< validation growth a bar, 0 before the first
  SeenBars seen;     ///< empty in files of earlier versions
};

/// Writes the policy's datasets into an open file, tensor by tensor under `parameters/` (docs/checkpoints.md).
void write_policy(io::H5Writer& file, const Policy& policy);
/// Reads what write_policy wrote. Throws RunError where something is missing or of another shape.
Policy read_policy(const io::H5Reader& file);

void save_policy(const std::string& path, const Policy& policy);
Policy load_policy(const std::string& path);

/// Tensors of a flat buffer as datasets `<group>/<tensor>`, each [rows, columns] (biases [n]).
void write_tensors(io::H5Writer& file, const std::string& group, const ParameterLayout& layout, const float* buffer);
void read_tensors(const io::H5Reader& file, const std::string& group, const ParameterLayout& layout, float* buffer);

/// The same for a flat buffer in device memory.
template <class... Properties>
void write_tensors(io::H5Writer& file, const std::string& group, const ParameterLayout& layout,
                   const Kokkos::View<float*, Properties...>& buffer) {
  write_tensors(file, group, layout, download(buffer).data());
}
template <class... Properties>
void read_tensors(const io::H5Reader& file, const std::string& group, const ParameterLayout& layout,
                  const Kokkos::View<float*, Properties...>& buffer) {
  std::vector<float> host(layout.size(), 0.0f);  // padding is zero in every buffer
  read_tensors(file, group, layout, host.data());
  Kokkos::deep_copy(buffer, host_view(host));
}

}  // namespace vulpes::agent
