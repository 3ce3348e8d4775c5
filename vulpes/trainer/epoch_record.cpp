#include "vulpes/trainer/epoch_record.hpp"

#include <unistd.h>

#include <bit>
#include <cmath>
#include <fstream>

namespace vulpes::trainer {

template <class Space>
void add_weight_figures(const Space& space, const Learner<Space>& learner, io::Record& record) {
  const auto squares =
      allocate<Vector<double, Space>>(space, "vulpes::metrics::weight_squares_out", learner.work.chunks.extent(0));
  kernels::weight_squares(space, learner.work, learner.buffers.parameters, squares);
  space.fence("vulpes::metrics::weights");
  const std::vector<double> sums = download(squares);
  const std::vector<kernels::TensorGroup> groups = download(learner.work.groups);
  double by_group[kernels::tensor_groups] = {};
  for (std::size_t i = 0; i < sums.size(); ++i) by_group[static_cast<int>(groups[i])] += sums[i];
  for (int g = 0; g < kernels::tensor_groups; ++g) {
    record.emplace_back(std::string("weight_norm_") + kernels::tensor_group_names[g], std::sqrt(by_group[g]));
  }

  if (learner.buffers.mask.extent(0) > 0) {
    double pruned = 0, weights = 0;
    for (const std::uint32_t word : download(learner.buffers.mask)) pruned += std::popcount(word);
    for (const TensorSlice& t : learner.network.layout.tensors()) weights += t.is_weight ? t.size() : 0;
    record.emplace_back("sparsity", pruned / weights);
  }
  const std::vector<float> sigma = download(learner.spectral.sigma);
  for (std::size_t i = 0; i < sigma.size(); ++i) record.emplace_back("sigma_" + learner.spectral.names[i], sigma[i]);
}

std::optional<double> resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  long total = 0, resident = 0;
  if (!(file >> total >> resident)) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

#define INSTANTIATE(S) template void add_weight_figures<S>(const S&, const Learner<S>&, io::Record&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
