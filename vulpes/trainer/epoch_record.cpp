#include "vulpes/trainer/epoch_record.hpp"

#include <unistd.h>

#include <fstream>

namespace vulpes::trainer {

template <class Space>
EpochFigures<Space>::EpochFigures(const Space& space, const StepContext<Space>& context) {
  const Learner<Space>& learner = context.learner;
  sources_.work = learner.work;
  sources_.parameters = learner.buffers.parameters;
  sources_.mask = learner.buffers.mask;
  sources_.sigma = learner.spectral.sigma;
  sources_.state = learner.state;
  sources_.counts = context.replay.counts;
  sources_.largest = context.replay.ring.largest;
  sources_.deltas = context.buffers.causal.records;
  sources_.records = context.buffers.records;
  sources_.squares = allocate<Vector<double, Space>>(space, "vulpes::metrics::squares", learner.work.chunks.extent(0));
  shared_ = kernels::SharedFigures("vulpes::metrics::shared", static_cast<std::size_t>(sources_.size()));
}

template <class Space>
void EpochFigures<Space>::queue(const Space& space) {
  kernels::epoch_figures(space, sources_, shared_);
  written_.record(space);
}

std::optional<double> resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  long total = 0, resident = 0;
  if (!(file >> total >> resident)) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

#define INSTANTIATE(S) template class EpochFigures<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
