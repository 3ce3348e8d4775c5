// vulpes step: exactly one training step from a saved state, everything written (docs/step-format.md).
#include <cstdio>

#include "vulpes/app/commands.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/trainer/step_file.hpp"

namespace vulpes::app {
namespace {

struct StepOptions {
  std::string state, out;
  ConfigOptions config;
  bool no_trace = false;
};

/// Settings of the file, unless --config replaces them, with those of the command line.
io::Config settings(const StepOptions& o, const io::H5Reader& state) {
  if (!o.config.file.empty() || !state.has("config")) return o.config.read();
  io::Config config = io::config_from_toml(state.read_string("config"), o.state);
  for (const std::string& s : o.config.settings) io::apply_setting(config, s);
  io::check(config);
  return config;
}

ExitCode run(const StepOptions& o) {
  const io::H5Reader state(o.state, io::H5Reader::Trust::any);
  trainer::step_source(state);
  trainer::run_step_file(state, settings(o, state), o.out, !o.no_trace);
  std::printf("%s written\n", o.out.c_str());
  return ExitCode::done;
}

}  // namespace

void add_step(CLI::App& app, Command& command) {
  auto options = std::make_shared<StepOptions>();
  CLI::App* sub =
      app.add_subcommand("step", "Run one training step and write every intermediate (docs/step-format.md)");
  sub->add_option("--state", options->state,
                  "a run's full checkpoint, or an HDF5 file with parameters and a batch or replay")
      ->required()
      ->check(existing_file("give a full checkpoint, or a file as docs/step-format.md describes it"));
  sub->add_option("--out", options->out, "HDF5 file to write")->required();
  sub->add_option("--config", options->config.file, "TOML file; default: the state file's own 'config'")
      ->check(CLI::ExistingFile);
  sub->add_option("--set", options->config.settings, "name=value")->allow_extra_args(false);
  sub->add_flag("--no-trace", options->no_trace, "leave out what training itself does not write: goals, donors");
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace vulpes::app
