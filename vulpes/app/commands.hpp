// Subcommands. Each `add_*` describes one to CLI11 and sets `command` when it is chosen.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/config.hpp"

namespace vulpes::app {

using Command = std::function<ExitCode()>;

/// `log_level`: of the command line, read when the command runs.
void add_train(CLI::App& app, Command& command, const std::string& log_level);
void add_evaluate(CLI::App& app, Command& command);
void add_data(CLI::App& app, Command& command);
void add_step(CLI::App& app, Command& command);
void add_audit(CLI::App& app, Command& command);
void add_info(CLI::App& app, Command& command);

/// Of the sources that this program was built from.
const char* source_commit();
/// Vulpes, Kokkos, back ends and BLAS, one a line.
std::string version_text();
void start_logging(const std::string& level);

/// Refuses a path at which there is no file and says where it looked; `hint`: what to give instead.
CLI::Validator existing_file(const std::string& hint);
inline constexpr const char* bars_hint =
    "give a CSV or Parquet file of bars; 'vulpes data check FILE' says what is in one";
inline constexpr const char* checkpoint_hint = "give a file of a run's checkpoints/ folder";

/// Throws InputError for a back end that this build lacks, before any work is done for it.
void check_device(const std::string& device);

/// A configuration file with `--set` and `--seed` applied, checked.
struct ConfigOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string data;
  std::int64_t seed = -1;

  void add_to(CLI::App& sub);
  /// `defaults`: what holds without a file.
  io::Config read(const io::Config& defaults = {}) const;
};

}  // namespace vulpes::app
