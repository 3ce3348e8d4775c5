// Reading, writing and checking of the configuration (TOML). The settings themselves are listed in config.hpp only.
#pragma once

#include <string>
#include <vector>

#include "vulpes/io/config.hpp"

namespace vulpes::io {

/// Reads a TOML file over the defaults; an empty path gives the defaults.
/// Types, bounds and choices are checked here, since file, line and column are known; what several settings must
/// satisfy together is left to `check`, after the command line had its say.
/// Throws InputError with one problem a line: `c.toml:3:1: unknown setting 'agent.gama'; did you mean 'agent.gamma'?`.
Config read_config(const std::string& toml_path);

/// The same for TOML text that came from `source`, as from a checkpoint.
Config config_from_toml(const std::string& text, const std::string& source);

/// Applies one `key=value` of the command line; the value is written as in TOML, strings also without quotes.
/// Throws InputError.
void apply_setting(Config& config, const std::string& key_and_value);

/// The whole configuration as TOML, each setting with its meaning. Reading it back gives an equal configuration:
/// doubles are written with the fewest digits that identify them.
std::string to_toml(const Config& config);

/// A line a setting for `--help`: name, type or choices, default, meaning.
std::string settings_help();

/// Bounds of every setting and what settings must satisfy together. Throws InputError, one problem a line.
void check(const Config& config);

/// `name = value` of each setting that is not at its default, in the order of config.toml.
std::vector<std::string> changed_settings(const Config& config);

/// Names of the settings that differ, in the order of config.toml.
std::vector<std::string> difference(const Config& a, const Config& b);

/// Names of all settings, in the order of config.toml.
std::vector<std::string> setting_names();

/// The candidate that `name` probably means (fewest edits), or empty when none is near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace vulpes::io
