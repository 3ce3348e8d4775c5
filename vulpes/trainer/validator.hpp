// Validation beside training: snapshots of the parameters are backtested while the next epoch goes on.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "vulpes/core/instances.hpp"
#include "vulpes/evaluator/backtest.hpp"

namespace vulpes::trainer {

/// A snapshot and what its backtest gave.
struct Validation {
  double score = 0;              ///< mean log growth a decision
  double turnover = 0;           ///< traded notional / equity a decision
  double absolute_exposure = 0;  ///< mean over decisions
  double seconds = 0;            ///< of its backtest
  std::vector<float> parameters;
};

/// Backtests snapshots on an instance of low priority.
///
/// Training's device waits only while its parameters are copied into one of two snapshots. On CUDA a host thread of its
/// own launches and collects; a host space, which has one queue, backtests before `submit` returns. Results do not
/// depend on that.
template <class Space>
class Validator {
 public:
  Validator(const evaluator::Actor<Space>& actor, const kernels::MarketTable<Space>& table,
            const market::AccountRules& rules, std::uint32_t window, std::vector<evaluator::Walk> walks);
  /// Waits for what is under way.
  ~Validator();
  Validator(const Validator&) = delete;
  Validator& operator=(const Validator&) = delete;

  /// Takes a snapshot of `parameters` as they are after the work that `training` holds now, and backtests it. At most
  /// two are submitted and not collected.
  void submit(const Space& training, const Vector<float, Space>& parameters);
  /// The oldest snapshot that was not collected; waits for it. Throws what its backtest threw.
  Validation collect();

 private:
  struct Snapshot {
    Vector<float, Space> parameters;
    Event<Space> taken;
  };
  Validation run(const Snapshot& snapshot);
  void work();

  static constexpr bool has_thread = !is_host_space<Space>;
  Space space_;
  evaluator::Backtester<Space> backtester_;
  Snapshot snapshots_[2];
  Kokkos::View<float*, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace> host_;
  std::size_t submitted_ = 0;
  std::deque<std::future<Validation>> results_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<Validation()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace vulpes::trainer
