// vulpes train
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "vulpes/app/commands.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/trainer/test.hpp"
#include "vulpes/trainer/trainer.hpp"

namespace vulpes::app {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  ConfigOptions config;
  std::string out;
  bool resume = false;
};

/// A run folder's name from the time of day: runs/2026-12-01T12-30-00.
std::string default_folder() {
  const std::time_t now = std::time(nullptr);
  char text[64];
  std::strftime(text, sizeof(text), "runs/%Y-%m-%dT%H-%M-%S", std::gmtime(&now));
  return text;
}

ExitCode exit_code(trainer::Outcome outcome) {
  return outcome == trainer::Outcome::done ? ExitCode::done : ExitCode::interrupted;
}

/// What is allowed but hardly meant.
void warn_of(const io::Config& config) {
  if (config.train.steps <= config.agent.warmup_steps) {
    io::log()->warn(
        "train.steps = {} ends within agent.warmup_steps = {}: the distributional (C51) loss is never used; lower "
        "agent.warmup_steps or train longer",
        config.train.steps, config.agent.warmup_steps);
  }
}

/// The result of a run that has ended.
void print_result(const io::RunFolder& folder) {
  const nlohmann::json summary = nlohmann::json::parse(io::read_file(folder.summary()));
  io::log()->info("{}: this run is already finished; nothing is left to train or test", folder.path());
  std::printf("\n%s\nResults are in %s/\n", trainer::test_table(summary.at("test")).c_str(), folder.path().c_str());
}

/// A new run. A start that fails leaves the folder as it was, so that the mended command can be given again.
ExitCode start(const io::Config& config, const std::string& path, const std::string& log_level) {
  check_device(config.run.device);
  const bool existed = fs::exists(path);
  std::optional<io::RunFolder> folder = io::RunFolder::create(path);
  try {
    io::start_logging(log_level, folder->log_file());
    warn_of(config);
    io::write_file_atomically(folder->config(), io::to_toml(config));
    return exit_code(trainer::train(config, *folder, false));
  } catch (...) {
    std::error_code ignored;
    if (fs::is_empty(folder->checkpoints(), ignored)) {
      io::start_logging(log_level);  // closes the file
      for (const auto& entry : fs::directory_iterator(path, ignored)) {
        if (entry.path().filename() != ".lock") fs::remove_all(entry.path(), ignored);
      }
      folder.reset();
      if (!existed) fs::remove(path, ignored);
    }
    throw;
  }
}

ExitCode run(const TrainOptions& o, const std::string& log_level) {
  if (o.resume) {
    throw_if<InputError>(o.out.empty(), "train --resume: give the run's folder with --out");
    const io::RunFolder folder = io::RunFolder::resume(o.out);
    const io::Config stored = io::read_config(folder.config());
    const auto differing = io::difference(stored, o.config.read(stored));
    if (!differing.empty()) {
      throw InputError("train --resume: '" + differing.front() + "' differs from " + folder.config() +
                       "; a run goes on as it was started: leave CONFIG and --set away, or start a new run");
    }
    if (fs::exists(folder.summary())) {
      print_result(folder);
      return ExitCode::done;
    }
    check_device(stored.run.device);
    io::start_logging(log_level, folder.log_file());
    return exit_code(trainer::train(stored, folder, true));
  }
  return start(o.config.read(), o.out.empty() ? default_folder() : o.out, log_level);
}

}  // namespace

void add_train(CLI::App& app, Command& command, const std::string& log_level) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* sub = app.add_subcommand("train", "Train, validate and test an agent");
  options->config.add_to(*sub);
  sub->add_option("--out", options->out, "run folder to create; default runs/<time>");
  sub->add_flag("--resume", options->resume, "go on from the newest checkpoint of --out");
  sub->callback(
      [options, &command, &log_level] { command = [options, &log_level] { return run(*options, log_level); }; });
}

}  // namespace vulpes::app
