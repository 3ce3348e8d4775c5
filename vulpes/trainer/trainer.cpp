#include "vulpes/trainer/trainer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/io/progress.hpp"
#include "vulpes/trainer/devices.hpp"
#include "vulpes/trainer/fold_trainer.hpp"
#include "vulpes/trainer/test.hpp"

namespace vulpes::trainer {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

bool stop_now(const io::RunFolder& folder) { return stop_requested.load() || fs::exists(folder.file("stop")); }

/// Files of a run's checkpoints/ folder.
class Checkpoints {
 public:
  explicit Checkpoints(std::string folder) : folder_(std::move(folder)) {}

  std::string best(int fold) const { return folder_ + "/fold-" + std::to_string(fold) + "-best.h5"; }
  std::string full(int fold, std::int64_t step) const {
    char name[64];
    std::snprintf(name, sizeof(name), "/fold-%d-step-%010lld.h5", fold, static_cast<long long>(step));
    return folder_ + name;
  }

  /// State that the guard froze; not among those a run is resumed from.
  std::string stopped(int fold) const { return folder_ + "/fold-" + std::to_string(fold) + "-stopped.h5"; }

  struct Entry {
    int fold;
    std::int64_t step;
    std::string path;
  };
  /// Full checkpoints, newest first.
  std::vector<Entry> list() const {
    std::vector<Entry> entries;
    for (const auto& file : fs::directory_iterator(folder_)) {
      int fold = 0, end = 0;
      long long step = 0;
      const std::string name = file.path().filename().string();
      if (std::sscanf(name.c_str(), "fold-%d-step-%lld.h5%n", &fold, &step, &end) == 2 &&
          end == static_cast<int>(name.size())) {
        entries.push_back({fold, step, file.path().string()});
      }
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.fold, a.step) > std::pair(b.fold, b.step); });
    return entries;
  }
  /// Removes all but the newest `keep` of a fold, and those of earlier folds but their last.
  void prune(int fold, std::int64_t keep) const {
    std::int64_t seen = 0;
    int other = 0;
    for (const Entry& e : list()) {
      const bool stays = e.fold == fold ? seen++ < keep : e.fold != other;
      if (e.fold != fold) other = e.fold;
      if (!stays) fs::remove(e.path);
    }
  }

 private:
  std::string folder_;
};

std::string megabytes(std::uintmax_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

/// Keeps the frozen state for inspection and says what the guard saw. Resuming goes on from the checkpoint before it.
template <class Space>
[[noreturn]] void stop_by_guard(FoldTrainer<Space>& trainer, const io::Config& config, const Checkpoints& checkpoints,
                                int fold, std::int64_t metric_rows) {
  const kernels::StepCounters seen = trainer.counters();
  const std::string frozen = checkpoints.stopped(fold);
  trainer.save(frozen, metric_rows);
  char norm[32];
  std::snprintf(norm, sizeof(norm), "%.4g", seen.fault_norm);
  const std::vector<Checkpoints::Entry> good = checkpoints.list();
  throw RunError("fold " + std::to_string(fold) +
                 ": the guard stopped training: " + std::to_string(config.guard.patience) +
                 " steps in a row were refused, the last one, step " + std::to_string(seen.fault_iteration) + ", for " +
                 (seen.fault == kernels::Fault::spike ? "a gradient norm of " + std::string(norm)
                                                      : "a NaN or Inf in the loss or gradient") +
                 ", after " + std::to_string(seen.rollbacks) + " rollbacks; the last good checkpoint is " +
                 (good.empty() ? "none" : good.front().path) + ", the frozen state is in " + frozen +
                 "; lower optimiser.learning_rate, or look at the step with 'vulpes step'");
}

/// What the progress bar says of an epoch.
std::string progress_note(const io::Record& record) {
  std::string note;
  for (const auto& [key, value] : record) {
    char text[64] = "";
    if (value && key == "loss") std::snprintf(text, sizeof(text), "loss %.4g", *value);
    if (value && key == "validation_growth_bp") std::snprintf(text, sizeof(text), ", validation %.3f bp", *value);
    note += text;
  }
  return note;
}

/// Trains one fold to its end; false when it was stopped on the way.
template <class Space>
bool train_fold(const io::Config& config, const io::RunFolder& folder, const Dataset& data,
                const Dataset::FoldRanges& ranges, const std::optional<Checkpoints::Entry>& resume_from,
                std::unique_ptr<io::MetricsWriter>& metrics) {
  const Checkpoints checkpoints(folder.checkpoints());
  FoldTrainer<Space> trainer(config, data, ranges);
  const auto save = [&] {
    trainer.save(checkpoints.full(ranges.number, trainer.progress().steps), metrics->rows());
    checkpoints.prune(ranges.number, config.train.keep);
  };
  if (resume_from) {
    const std::int64_t rows = trainer.load(resume_from->path);
    if (!metrics) metrics = std::make_unique<io::MetricsWriter>(folder.path(), rows);
    io::log()->info("fold {}: resumed at step {} from {}", ranges.number, trainer.progress().steps, resume_from->path);
  } else {
    if (!metrics) metrics = std::make_unique<io::MetricsWriter>(folder.path());
    trainer.prefill();
    const auto began = std::chrono::steady_clock::now();
    save();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    io::log()->info("a checkpoint takes {} and {:.2f} s", megabytes(fs::file_size(checkpoints.full(ranges.number, 0))),
                    seconds);
  }

  io::Progress bar("fold " + std::to_string(ranges.number), config.train.steps, trainer.progress().steps);
  while (!trainer.finished()) {
    const auto results = trainer.run_epoch([&] {
      bar.update(trainer.progress().steps);
      return stop_now(folder);
    });
    if (!results) {
      bar.finish();
      if (trainer.counters().stopped) stop_by_guard(trainer, config, checkpoints, ranges.number, metrics->rows());
      save();
      return false;
    }
    std::string note;
    for (const EpochResult& r : *results) {
      metrics->write(r.record);
      if (r.best) agent::save_policy(checkpoints.best(ranges.number), *r.best);
      note = progress_note(r.record);
    }
    if (trainer.finished() || trainer.progress().epoch % config.train.checkpoint_epochs == 0) save();
    bar.update(trainer.progress().steps, note);
  }
  bar.finish();
  return true;
}

/// The newest full checkpoint that can be read; names every one that cannot.
std::optional<Checkpoints::Entry> newest_readable(const Checkpoints& checkpoints) {
  for (const Checkpoints::Entry& e : checkpoints.list()) {
    try {
      const io::H5Reader file(e.path);
      agent::read_policy(file);
      return e;
    } catch (const RunError& error) {
      io::log()->warn("{}; falling back to the checkpoint before it", error.what());
    }
  }
  return std::nullopt;
}

}  // namespace

void request_stop() { stop_requested.store(true); }

Outcome train(const io::Config& config, const io::RunFolder& folder, bool resume) {
  const auto began = std::chrono::steady_clock::now();
  const Dataset data = load_dataset(config);
  for (const std::string& note : data.notes) io::log()->info("{}: {}", data.source, note);
  io::log()->info("{}: {} bars, {} features, {:.0f} bars a year", data.source, data.bars.size(), data.features.columns,
                  data.bars_a_year);
  const MemoryEstimate memory = estimate_memory(config, data.bars.size(), data.features.columns);
  io::log()->info("memory {} (replay {}, market {}); {}", megabytes(memory.total()), megabytes(memory.replay),
                  megabytes(memory.market), host_numerics_description());

  const Checkpoints checkpoints(folder.checkpoints());
  std::optional<Checkpoints::Entry> newest = resume ? newest_readable(checkpoints) : std::nullopt;
  std::unique_ptr<io::MetricsWriter> metrics;
  std::vector<agent::Policy> policies;
  for (const Dataset::FoldRanges& ranges : data.folds) {
    if (config.folds.only != 0 && config.folds.only != ranges.number) continue;
    const bool before = newest && newest->fold > ranges.number;
    if (!before) {
      const auto from = newest && newest->fold == ranges.number ? newest : std::nullopt;
      const bool finished = on_device(config.run.device, [&](const auto& space) {
        return train_fold<std::decay_t<decltype(space)>>(config, folder, data, ranges, from, metrics);
      });
      if (!finished) {
        io::log()->info("interrupted; checkpoint written, 'vulpes train --resume --out {}' goes on", folder.path());
        return Outcome::interrupted;
      }
    }
    policies.push_back(agent::load_policy(checkpoints.best(ranges.number)));
  }

  const double trained = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const TestReport report = run_test(config, data, policies);
  nlohmann::json summary;
  summary["seed"] = config.run.seed;
  summary["data"] = data.source;
  for (const agent::Policy& p : policies) {
    summary["folds"].push_back({{"fold", p.fold},
                                {"best_step", p.step},
                                {"validation_growth_per_bar", p.score},
                                {"parameters", agent::parameter_hash(p.parameters)},
                                {"ranges", fold_ranges(data, data.folds[static_cast<std::size_t>(p.fold) - 1])}});
  }
  summary["test"] = summarise(report, data, config);
  summary["seconds_training"] = trained;
  io::write_file_atomically(folder.summary(), summary.dump(2) + "\n");
  const std::string table = test_table(summary["test"]);
  io::log_to_file(table);
  std::fputs(("\n" + table + "\nResults are in " + folder.path() + "/\n").c_str(), stdout);
  return Outcome::done;
}

}  // namespace vulpes::trainer
