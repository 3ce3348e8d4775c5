// Training of one fold: collection, updates, validation, checkpoints.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "vulpes/agent/agent.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/trainer/collection.hpp"
#include "vulpes/trainer/dataset.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::trainer {

/// Bytes of device memory that a fold's training takes, by part.
struct MemoryEstimate {
  std::size_t replay = 0, network = 0, step = 0, market = 0;
  std::size_t total() const { return replay + network + step + market; }
};
MemoryEstimate estimate_memory(const io::Config& config, std::size_t bars, int feature_columns);
/// Bytes of a full checkpoint.
std::size_t estimate_checkpoint(const io::Config& config, int feature_columns);

/// Counters of the epochs, on the host; part of a checkpoint.
struct Progress {
  std::int64_t epoch = 0;
  std::int64_t steps = 0;      ///< updates run
  std::int64_t bar_steps = 0;  ///< of all accounts together
  std::int64_t epochs_without_gain = 0;
  std::int64_t best_step = 0;
  double best_score = 0;
  bool finished = false;
};

template <class Space>
class FoldTrainer {
 public:
  /// Fits the normaliser and uploads the market; draws the initial network.
  FoldTrainer(const io::Config& config, const Dataset& data, const Dataset::FoldRanges& fold);

  /// Fills the replay with random play and, from what it saw, sets reward scale and support. Not after `load`.
  void prefill();
  /// Goes on to the end of the epoch (fewer steps in the last one), validates and returns the metrics' record; or
  /// nothing, when `stop` became true on the way (then the state may be saved between two collections) or the guard
  /// stopped training (counters().stopped).
  std::optional<io::Record> run_epoch(const std::function<bool()>& stop);
  bool finished() const { return progress_.finished; }
  const Progress& progress() const { return progress_; }
  /// True when the last validation was the best so far.
  bool is_best() const { return progress_.best_step == progress_.steps && progress_.steps > 0; }

  /// Of the last step; waits for it.
  kernels::StepCounters counters() const;

  /// What a training step reads and writes, for a look at a single one (step_file.hpp).
  struct Parts {
    const StepRules& rules;
    const Learner<Space>& learner;
    const StepBuffers<Space>& buffers;
    const Replay<Space>& replay;
    const kernels::MarketTable<Space>& table;
    const kernels::FeatureGroups& groups;
  };
  Parts parts() const { return {rules_, *learner_, buffers_, replay_, table_, groups_}; }
  /// The collection that precedes the next updates; every checkpoint is saved before one.
  void collect_for_updates() { collect(config_.train.collect_steps); }

  /// The agent as it is validated: averaged (target) or online parameters.
  agent::Policy policy() const;
  void save(const std::string& path, std::int64_t metric_rows) const;
  /// Takes over a checkpoint; returns its metric rows. Throws RunError, InputError when it is of another configuration.
  std::int64_t load(const std::string& path);

 private:
  void collect(std::int64_t bar_steps);
  void prepare_rules(double vmin, double vmax, double reward_scale);
  double validate(std::vector<evaluator::WalkResult>* results) const;

  io::Config config_;
  const Dataset& data_;
  Dataset::FoldRanges fold_;
  Space space_;
  RandomKey key_;
  market::Normaliser normaliser_;
  agent::SeenBars seen_;
  kernels::MarketTable<Space> table_;
  std::vector<evaluator::Walk> validation_walks_;
  std::optional<Learner<Space>> learner_;
  kernels::FeatureGroups groups_;
  StepBuffers<Space> buffers_;
  Replay<Space> replay_;
  kernels::CollectBuffers<Space> collect_buffers_;
  kernels::CollectArguments<Space> collect_arguments_;
  StepRules rules_;
  double vmin_ = 0, vmax_ = 0, reward_scale_ = 0;
  double return_sd_ = 0;  ///< of a bar of the training range
  Progress progress_;
};

/// The support from the spread of rewards: `sd` of a bar's reward at full exposure.
/// vmax = sd (3 / sqrt(1 - gamma^2) + 0.15 / (1 - gamma) + 0.6): three standard deviations of the discounted sum of
/// independent rewards, a predictable growth of 0.15 sd a bar, and a conditional mean of 0.6 sd; vmin = -0.6 vmax.
struct SupportEnds {
  double vmin, vmax;
};
SupportEnds support_rule(double sd, double gamma);

}  // namespace vulpes::trainer
