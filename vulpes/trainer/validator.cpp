#include "vulpes/trainer/validator.hpp"

#include <chrono>
#include <cmath>

#include "vulpes/core/scope.hpp"

namespace vulpes::trainer {

template <class Space>
Validator<Space>::Validator(const evaluator::Actor<Space>& actor, const kernels::MarketTable<Space>& table,
                            const market::AccountRules& rules, std::uint32_t window, std::vector<evaluator::Walk> walks)
    : space_(instance_of<Space>(Queue::background)),
      backtester_(space_, actor, table, rules, window, std::move(walks)) {
  for (Snapshot& s : snapshots_) {
    s.parameters = allocate<Vector<float, Space>>(space_, "vulpes::validator::snapshot", actor.network.layout.size());
  }
  host_ = decltype(host_)(Kokkos::view_alloc(Kokkos::WithoutInitializing, "vulpes::validator::host"),
                          actor.network.layout.size());
  space_.fence("vulpes::validator::ready");
  if (has_thread) thread_ = std::thread([this] { work(); });
}

template <class Space>
Validator<Space>::~Validator() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

template <class Space>
void Validator<Space>::work() {
  for (;;) {
    std::packaged_task<Validation()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

template <class Space>
void Validator<Space>::submit(const Space& training, const Vector<float, Space>& parameters) {
  const Snapshot& s = snapshots_[submitted_++ % 2];
  Kokkos::deep_copy(training, s.parameters, parameters);
  order(training, space_, s.taken);
  std::packaged_task<Validation()> task([this, &s] { return run(s); });
  results_.push_back(task.get_future());
  if (!has_thread) return task();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

template <class Space>
Validation Validator<Space>::run(const Snapshot& snapshot) {
  const InWindow window(Window::validation);
  const auto began = std::chrono::steady_clock::now();
  const std::vector<evaluator::WalkResult> results = backtester_.run(snapshot.parameters);
  Validation v;
  v.score = evaluator::mean_growth(results);
  std::size_t decisions = 0;
  for (const evaluator::WalkResult& r : results) {
    for (const kernels::BacktestRecord& b : r.records) {
      v.turnover += std::abs(b.fill_units * b.fill_price) / b.equity;
      v.absolute_exposure += std::abs(b.exposure);
    }
    decisions += r.records.size();
  }
  v.turnover /= static_cast<double>(decisions);
  v.absolute_exposure /= static_cast<double>(decisions);
  Kokkos::deep_copy(space_, host_, snapshot.parameters);
  space_.fence("vulpes::validator::run");
  v.parameters.assign(host_.data(), host_.data() + host_.extent(0));
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return v;
}

template <class Space>
Validation Validator<Space>::collect() {
  std::future<Validation> result = std::move(results_.front());
  results_.pop_front();
  return result.get();
}

#define INSTANTIATE(S) template class Validator<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
