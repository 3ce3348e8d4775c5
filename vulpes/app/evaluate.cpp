// vulpes evaluate
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "vulpes/agent/agent.hpp"
#include "vulpes/app/commands.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/io/time_text.hpp"
#include "vulpes/trainer/test.hpp"

namespace vulpes::app {
namespace {

namespace fs = std::filesystem;

struct EvaluateOptions {
  std::string checkpoint, data, out, device;
  bool force = false;
};

constexpr const char* result_files[] = {"summary.json", "decisions.csv", "decisions.h5"};

/// Results are not overwritten unawares, those of a training never.
void check_folder(const EvaluateOptions& o) {
  throw_if<InputError>(fs::exists(o.out + "/config.toml"),
                       o.out + ": a run's folder, whose summary.json is the training's; choose another for --out");
  for (const char* name : result_files) {
    throw_if<InputError>(!o.force && fs::exists(o.out + "/" + name),
                         o.out + ": holds " + name + " of an earlier evaluation; choose another --out, or --force");
  }
}

/// Says when the bars are not what an evaluation of this policy should be on.
void warn_of(const agent::Policy& policy, const trainer::Dataset& data) {
  const agent::SeenBars& seen = policy.seen;
  if (seen.in(data.bars)) {
    io::log()->warn(
        "{}: holds bars that the policy was trained and chosen on (these went from {} to {}): growth on them says "
        "nothing about new bars",
        data.source, io::format_time(seen.first), io::format_time(seen.last));
  }
  const double seconds = market::bar_seconds(data.bars);
  if (seen.bar_seconds > 0 && seconds > 0 && std::abs(std::log(seconds / seen.bar_seconds)) > 0.1) {
    io::log()->warn(
        "{}: bars of {:g} s, but the policy was trained on bars of {:g} s, so that all it learned of speeds "
        "and distances differs",
        data.source, seconds, seen.bar_seconds);
  }
}

/// The dataset whose test ranges the policy is evaluated on: the bars of `file`, or those of the policy's own run.
trainer::Dataset evaluation_data(const agent::Policy& policy, const std::string& file) {
  if (file.empty()) return trainer::load_dataset(policy.config);
  trainer::Dataset data = trainer::load_bars(policy.config, file);
  data.folds.resize(static_cast<std::size_t>(policy.fold));
  data.folds.back().test = {{0, data.bars.size()}};
  return data;
}

/// One line a bar: what the account did and had; times are those of the bar in which a decision was executed.
std::string decisions_csv(const trainer::TestReport& report, const trainer::Dataset& data) {
  std::ostringstream csv;
  csv << "decided,executed,exposure_level,order,urgency,fill_units,fill_price,fee,equity,exposure,log_growth\n";
  constexpr const char* orders[] = {"market", "limit", "passive"};
  constexpr const char* urgencies[] = {"1", "1/2", "1/4"};
  for (const evaluator::WalkResult& w : report.agent.walks) {
    std::size_t bar = w.walk.begin;
    for (const kernels::BacktestRecord& r : w.records) {
      csv << io::format_time(data.bars.time[bar]) << ',' << io::format_time(data.bars.time[bar + 1]) << ','
          << io::number_text(market::exposure_level(r.action[0])) << ',' << orders[r.action[1]] << ','
          << urgencies[r.action[2]] << ',' << io::number_text(r.fill_units) << ','
          << (r.fill_units != 0 ? io::number_text(r.fill_price) : "") << ',' << io::number_text(r.fee) << ','
          << io::number_text(r.equity) << ',' << io::number_text(r.exposure) << ',' << io::number_text(r.log_growth)
          << '\n';
      ++bar;
    }
  }
  return csv.str();
}

/// States and actions, for other programs (docs/checkpoints.md, examples/numpy_policy.py).
void write_decisions(const std::string& path, const trainer::TestReport& report, const trainer::Dataset& data,
                     int width) {
  std::vector<float> states;
  std::vector<std::uint8_t> actions;
  std::vector<std::int64_t> times;
  std::vector<double> equity;
  for (const evaluator::WalkResult& w : report.agent.walks) {
    states.insert(states.end(), w.states.begin(), w.states.end());
    std::size_t bar = w.walk.begin;
    for (const kernels::BacktestRecord& r : w.records) {
      actions.insert(actions.end(), r.action, r.action + kernels::branches);
      equity.push_back(r.equity);
      times.push_back(data.bars.time[bar++]);
    }
  }
  io::H5Writer file(path);
  const std::uint64_t rows = times.size();
  file.write("states", states.data(), {rows, static_cast<std::uint64_t>(width)});
  file.write("actions", actions.data(), {rows, kernels::branches});
  file.write("time", times);
  file.write("equity", equity);
  file.finish();
}

ExitCode run(const EvaluateOptions& o) {
  agent::Policy policy = agent::load_policy(o.checkpoint);
  if (!o.device.empty()) policy.config.run.device = o.device;
  check_device(policy.config.run.device);
  const bool write = !o.out.empty();
  if (write) check_folder(o);
  const trainer::Dataset data = evaluation_data(policy, o.data);
  for (const std::string& note : data.notes) io::log()->info("{}: {}", data.source, note);
  throw_if<InputError>(data.features.names != policy.feature_names,
                       data.source + ": its columns give other features than the policy was trained with (policy: " +
                           std::to_string(policy.feature_names.size()) + ", data: " +
                           std::to_string(data.features.names.size()) + "); extra columns must have the same names");
  if (!o.data.empty()) warn_of(policy, data);
  const trainer::TestReport report = trainer::run_test(policy.config, data, {policy}, write);
  throw_if<InputError>(report.agent.growths.empty(), data.source + ": no usable bar; the features need " +
                                                         std::to_string(data.features.warm_up) + " bars to warm up");
  const nlohmann::json test = trainer::summarise(report, data, policy.config);
  if (write) {
    std::error_code error;
    fs::create_directories(o.out, error);
    throw_if<RunError>(static_cast<bool>(error), o.out + ": cannot make the folder: " + error.message());
    nlohmann::json summary;
    summary["checkpoint"] = o.checkpoint;
    summary["data"] = data.source;
    summary["parameters"] = agent::parameter_hash(policy.parameters);
    summary["test"] = test;
    io::write_file_atomically(o.out + "/summary.json", summary.dump(2) + "\n");
    io::write_file_atomically(o.out + "/decisions.csv", decisions_csv(report, data));
    write_decisions(o.out + "/decisions.h5", report, data, policy.shape.state);
  }
  std::fputs(trainer::test_table(test).c_str(), stdout);
  if (write) std::printf("\nResults are in %s/\n", o.out.c_str());
  return ExitCode::done;
}

}  // namespace

void add_evaluate(CLI::App& app, Command& command) {
  auto options = std::make_shared<EvaluateOptions>();
  CLI::App* sub = app.add_subcommand("evaluate", "Backtest a trained policy, on its run's test range or on new data");
  sub->add_option("CHECKPOINT", options->checkpoint, "a file of a run's checkpoints/ folder")
      ->required()
      ->check(existing_file(checkpoint_hint));
  sub->add_option("--data", options->data, "CSV or Parquet file of bars; default: the run's own test range")
      ->check(existing_file(bars_hint));
  sub->add_option("--out", options->out, "folder for summary.json, decisions.csv and decisions.h5");
  sub->add_flag("--force", options->force, "overwrite an earlier evaluation in --out");
  sub->add_option("--device", options->device, "back end (run.device); default: that of the training");
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace vulpes::app
