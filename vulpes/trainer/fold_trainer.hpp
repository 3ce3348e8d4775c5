// Training of one fold: collection, updates, validation, checkpoints.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "vulpes/agent/agent.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/trainer/collection.hpp"
#include "vulpes/trainer/dataset.hpp"
#include "vulpes/trainer/epoch_record.hpp"
#include "vulpes/trainer/graphs.hpp"
#include "vulpes/trainer/validator.hpp"

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
  std::int64_t best_step = 0;  ///< 0: none yet
  double best_score = 0;
  bool finished = false;
};

/// What is known of an epoch once it was validated.
struct EpochResult {
  io::Record record;
  std::optional<agent::Policy> best;  ///< the policy that was validated, when it is the best so far
};

template <class Space>
class FoldTrainer {
 public:
  /// Fits the normaliser and uploads the market; draws the initial network.
  FoldTrainer(const io::Config& config, const Dataset& data, const Dataset::FoldRanges& fold);

  /// Fills the replay with random play and, from what it saw, sets reward scale and support. Not after `load`.
  void prefill();
  /// Goes on to the end of the epoch (fewer steps in the last one) and returns what became known meanwhile: the epoch
  /// before it, whose validation ran beside this one; once training is finished, this one too. Nothing, when `stop`
  /// became true on the way (then the state may be saved between two collections) or the guard stopped training
  /// (counters().stopped).
  std::optional<std::vector<EpochResult>> run_epoch(const std::function<bool()>& stop);
  bool finished() const { return progress_.finished; }
  const Progress& progress() const { return progress_; }

  /// Of the last step; waits for it.
  kernels::StepCounters counters() const;

  /// What a training step reads and writes, for a look at a single one (step_file.hpp).
  const StepContext<Space>& context() const { return runner_->context(); }
  const kernels::FeatureGroups& groups() const { return groups_; }
  /// The collection that precedes the next updates; every checkpoint is saved before one.
  void collect_for_updates() { collect(config_.train.collect_steps); }

  /// The agent as it is validated: averaged (target) or online parameters.
  agent::Policy policy() const { return policy(download(validated_parameters()), progress_.steps); }
  /// Waits for the validation that is under way: its result is part of the file.
  void save(const std::string& path, std::int64_t metric_rows);
  /// Takes over a checkpoint; returns its metric rows. Throws RunError, InputError when it is of another configuration.
  std::int64_t load(const std::string& path);

 private:
  /// An epoch whose steps are queued, and which was not reported yet.
  struct OpenEpoch {
    std::int64_t number = 0, first = 0, steps = 0, bar_steps = 0;  ///< steps and bar-steps at its end
    double steps_a_second = 0, bar_steps_a_second = 0;
    std::optional<Validation> validation;  ///< once it was collected; part of a checkpoint, with record and steps
    io::Record record;                     ///< likewise
  };

  void collect(std::int64_t bar_steps);
  agent::Policy policy(std::vector<float> parameters, std::int64_t step) const;
  const Vector<float, Space>& validated_parameters() const {
    return config_.train.evaluate_with == "target" ? learner_->buffers.target : learner_->buffers.parameters;
  }
  void prepare_rules(double vmin, double vmax, double reward_scale);
  /// What is built from the final rules.
  void begin_training();
  io::Record make_record() const;
  /// Waits for what the open epoch's record needs; false when the guard had stopped training in it.
  bool evaluate_open_epoch();
  EpochResult report_open_epoch();
  /// Calls f(name in a checkpoint, View) for what it holds beside the learner's buffers.
  template <class F>
  void visit_arrays(const F& f) const;
  void write_open_epoch(io::H5Writer& file) const;
  void read_open_epoch(const io::H5Reader& file);

  io::Config config_;
  const Dataset& data_;
  Dataset::FoldRanges fold_;
  Lanes<Space> lanes_;
  const Space& space_ = lanes_.main;
  RandomKey key_;
  market::Normaliser normaliser_;
  agent::SeenBars seen_;
  kernels::MarketTable<Space> table_;
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
  std::optional<StepRunner<Space>> runner_;
  std::map<std::pair<std::int64_t, bool>, Replayed<Space>> collections_;  ///< by bars, and whether the first of a run
  EpochFigures<Space> figures_;
  std::optional<OpenEpoch> open_;
  std::unique_ptr<Validator<Space>> validator_;  ///< last: its thread ends before what it works on
};

/// The support from the spread of rewards: `sd` of a bar's reward at full exposure.
/// vmax = sd (3 / sqrt(1 - gamma^2) + 0.15 / (1 - gamma) + 0.6): three standard deviations of the discounted sum of
/// independent rewards, a predictable growth of 0.15 sd a bar, and a conditional mean of 0.6 sd; vmin = -0.6 vmax.
struct SupportEnds {
  double vmin, vmax;
};
SupportEnds support_rule(double sd, double gamma);

}  // namespace vulpes::trainer
