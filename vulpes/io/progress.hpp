// Progress on stderr: a bar on a terminal, a line now and then elsewhere. Time is shown, never part of results.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

namespace vulpes::io {

struct ProgressOptions {
  std::FILE* stream = stderr;
  std::optional<bool> terminal;   ///< empty: as isatty says
  double bar_seconds = 0.2;       ///< least time between two drawings of the bar
  double line_seconds = 30;       ///< least time between two lines
  std::function<double()> clock;  ///< seconds; empty: the steady clock
};

/// One at a time. `update` costs a clock reading unless something is due. Used from one thread.
class Progress {
 public:
  /// `start`: work done before (a resumed run); it does not count in the rate.
  Progress(std::string label, std::int64_t total, std::int64_t start = 0, ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `note`: shown behind the bar, as in "loss 1.93".
  void update(std::int64_t done, const std::string& note = {});
  /// Shows the last state and ends the line; later calls do nothing.
  void finish();

 private:
  void show(double now);

  std::string label_, note_;
  std::int64_t total_, start_, done_;
  ProgressOptions options_;
  bool terminal_;
  bool finished_ = false;
  double began_, next_;
};

namespace detail {
/// True while a bar stands on stderr's last line; a log line clears it first.
bool take_bar_on_stderr();
}  // namespace detail

}  // namespace vulpes::io
