#include "vulpes/io/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "vulpes/core/timing.hpp"

namespace vulpes::io {
namespace {

std::atomic<bool> bar_on_stderr{false};

/// `12 s`, `3 min 05 s`, `2 h 07 min`.
std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e15)));
  char text[48];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%lld s", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  }
  return text;
}

std::string rate_text(double rate) {
  char text[48];
  std::snprintf(text, sizeof text, rate >= 100 ? "%.0f/s" : "%.3g/s", rate);
  return text;
}

}  // namespace

namespace detail {
bool take_bar_on_stderr() { return bar_on_stderr.exchange(false); }
}  // namespace detail

Progress::Progress(std::string label, std::int64_t total, std::int64_t start, ProgressOptions options)
    : label_(std::move(label)), total_(total), start_(start), done_(start), options_(std::move(options)) {
  if (!options_.clock) options_.clock = seconds_now;
  terminal_ = options_.terminal.value_or(::isatty(::fileno(options_.stream)) == 1);
  began_ = options_.clock();
  next_ = began_ + (terminal_ ? options_.bar_seconds : options_.line_seconds);
}

Progress::~Progress() { finish(); }

void Progress::update(std::int64_t done, const std::string& note) {
  if (finished_) return;
  done_ = done;
  const double now = options_.clock();
  if (now < next_) return;
  if (!note.empty()) note_ = note;
  show(now);
  next_ = now + (terminal_ ? options_.bar_seconds : options_.line_seconds);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  show(options_.clock());
  if (terminal_) std::fputc('\n', options_.stream);
  std::fflush(options_.stream);
  if (options_.stream == stderr) detail::take_bar_on_stderr();
}

void Progress::show(double now) {
  const double share =
      total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 1.0;
  const double elapsed = now - began_;
  std::string text = label_ + " ";
  if (terminal_) {
    constexpr int width = 24;
    const int full = static_cast<int>(share * width);
    text.append("[").append(static_cast<std::size_t>(full), '#');
    text.append(static_cast<std::size_t>(width - full), '.').append("] ");
  }
  text += std::to_string(done_) + "/" + std::to_string(total_) + " (" + std::to_string(static_cast<int>(share * 100)) +
          " %)";
  const auto made = static_cast<double>(done_ - start_);
  if (elapsed > 0 && made > 0) {
    const double rate = made / elapsed;
    text += ", " + rate_text(rate);
    text += finished_
                ? ", took " + duration_text(elapsed)
                : ", " + duration_text(static_cast<double>(std::max<std::int64_t>(total_ - done_, 0)) / rate) + " left";
  }
  if (!note_.empty()) text += ", " + note_;
  if (terminal_) {
    std::fprintf(options_.stream, "\r%s\033[K", text.c_str());
    if (options_.stream == stderr) bar_on_stderr = true;
  } else {
    std::fprintf(options_.stream, "%s\n", text.c_str());
  }
  std::fflush(options_.stream);
}

}  // namespace vulpes::io
