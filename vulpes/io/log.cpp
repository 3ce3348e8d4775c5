#include "vulpes/io/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/progress.hpp"

namespace vulpes::io {
namespace {

/// Writes to stderr; a progress bar that stands there makes way.
class ConsoleSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    if (detail::take_bar_on_stderr()) std::fputs("\r\033[K", stderr);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }
};

constexpr const char* console_pattern = "%l: %v";
constexpr const char* file_pattern = "%Y-%m-%dT%H:%M:%S.%e%z %l: %v";

std::shared_ptr<spdlog::logger> make_logger(spdlog::level::level_enum level, const std::string& file) {
  auto console = std::make_shared<ConsoleSink>();
  console->set_pattern(console_pattern);
  auto logger = std::make_shared<spdlog::logger>("vulpes", console);
  if (!file.empty()) {
    try {
      auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
      sink->set_pattern(file_pattern);
      logger->sinks().push_back(sink);
    } catch (const spdlog::spdlog_ex&) {
      throw RunError("cannot write log " + file + ": " + std::strerror(errno));
    }
  }
  logger->set_level(level);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

std::mutex mutex;

std::shared_ptr<spdlog::logger>& current() {
  static std::shared_ptr<spdlog::logger> logger = make_logger(spdlog::level::info, {});
  return logger;
}

}  // namespace

void start_logging(const std::string& level, const std::string& file) {
  static const std::vector<std::string> names = {"trace", "debug", "info", "warn", "error", "off"};
  constexpr std::array levels = {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                                 spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};
  std::size_t at = 0;
  while (at < names.size() && names[at] != level) ++at;
  throw_if<InputError>(at == names.size(), "log level '" + level + "' is none of trace, debug, info, warn, error, off");
  std::shared_ptr<spdlog::logger> logger = make_logger(levels[at], file);
  const std::lock_guard guard(mutex);
  current() = std::move(logger);
}

void log_to_file(const std::string& text) {
  const std::shared_ptr<spdlog::logger> logger = log();
  if (!logger->should_log(spdlog::level::info)) return;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const spdlog::details::log_msg line(logger->name(), spdlog::level::info,
                                        spdlog::string_view_t(text.data() + begin, end - begin));
    for (std::size_t k = 1; k < logger->sinks().size(); ++k) logger->sinks()[k]->log(line);  // 0: the console
    begin = end + 1;
  }
  logger->flush();
}

std::shared_ptr<spdlog::logger> log() {
  const std::lock_guard guard(mutex);
  return current();
}

}  // namespace vulpes::io
