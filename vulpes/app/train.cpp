// vulpes train
#include <chrono>
#include <ctime>
#include <filesystem>

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

ExitCode run(const TrainOptions& o) {
  io::Config config = o.config.read();
  if (o.resume) {
    throw_if<InputError>(o.out.empty(), "train --resume: give the run's folder with --out");
    const io::RunFolder folder = io::RunFolder::resume(o.out);
    const io::Config stored = io::read_config(folder.config());
    const bool given =
        !o.config.file.empty() || !o.config.settings.empty() || !o.config.data.empty() || o.config.seed >= 0;
    const auto differing = io::difference(stored, config);
    if (given && !differing.empty()) {
      throw InputError("train --resume: '" + differing.front() + "' differs from " + folder.config() +
                       "; a run goes on as it was started: leave CONFIG and --set away, or start a new run");
    }
    io::start_logging("info", folder.log_file());
    return trainer::train(stored, folder, true) == trainer::Outcome::done ? ExitCode::done : ExitCode::interrupted;
  }
  const io::RunFolder folder = io::RunFolder::create(o.out.empty() ? default_folder() : o.out);
  io::start_logging("info", folder.log_file());
  io::write_file_atomically(folder.config(), io::to_toml(config));
  return trainer::train(config, folder, false) == trainer::Outcome::done ? ExitCode::done : ExitCode::interrupted;
}

}  // namespace

void add_train(CLI::App& app, Command& command) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* sub = app.add_subcommand("train", "Train, validate and test an agent");
  options->config.add_to(*sub);
  sub->add_option("--out", options->out, "run folder to create; default runs/<time>");
  sub->add_flag("--resume", options->resume, "go on from the newest checkpoint of --out");
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace vulpes::app
