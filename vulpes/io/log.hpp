// The program's log: `io::log()->info("...")`. Console on stderr, and the run folder's file once it is known.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

namespace vulpes::io {

/// Sets the level ("trace", "debug", "info", "warn", "error", "off") and, unless empty, a file that is appended to.
/// May be called again, as when the run folder becomes known. Throws InputError (level) or RunError (file).
void start_logging(const std::string& level, const std::string& file = {});

/// Lines of `text` at level info for the file only: what stdout shows anyway, as a table of results.
void log_to_file(const std::string& text);

/// The one logger; before start_logging it writes `info` and above to stderr. Safe from several threads.
std::shared_ptr<spdlog::logger> log();

}  // namespace vulpes::io
