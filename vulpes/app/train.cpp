// vulpes train
#include <chrono>
#include <ctime>
#include <filesystem>
#include <optional>

#include "vulpes/app/commands.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/trainer/trainer.hpp"

namespace vulpes::app {
namespace {

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

/// A new run. A start that fails leaves the folder as it was, so that the mended command can be given again.
ExitCode start(const io::Config& config, const std::string& path, const std::string& log_level) {
  namespace fs = std::filesystem;
  const bool existed = fs::exists(path);
  std::optional<io::RunFolder> folder = io::RunFolder::create(path);
  try {
    io::start_logging(log_level, folder->log_file());
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
