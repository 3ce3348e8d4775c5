// What the program is doing, for whoever observes it (vulpes/audit): a thread says which window of training it is in
// and which part of a step it launches. Two thread-local words; nobody has to be listening.
#pragma once

#include <cstdint>

namespace vulpes {

/// Stretches of a training with rules of their own. step: a step as all steps of a run are. step_setup: one that runs
/// kernel by kernel to bring up what is set up at first use, or that is recorded. epoch: the boundary between two
/// epochs. fold: from the end of one fold's last epoch to the first step of the next.
enum class Window { none, step, step_setup, collection, epoch, fold, validation };
inline constexpr int windows = 7;
inline constexpr const char* window_names[] = {"none",  "step", "step_setup", "collection",
                                               "epoch", "fold", "validation"};

/// Where a thread is: its window, which one of that kind it is for this thread (from 1), and the part of a step.
struct Position {
  Window window = Window::none;
  std::int64_t number = 0;
  const char* part = "";
};

/// Of the calling thread.
inline thread_local Position position;

/// The calling thread is in `window` as long as this lives; within one, another may be entered for a while.
class InWindow {
 public:
  explicit InWindow(Window window) : before_(position) {
    static thread_local std::int64_t entered[windows] = {};
    position.window = window;
    position.number = ++entered[static_cast<int>(window)];
  }
  ~InWindow() { position = before_; }
  InWindow(const InWindow&) = delete;
  InWindow& operator=(const InWindow&) = delete;

 private:
  Position before_;
};

/// The calling thread launches the part called `part` (a literal) as long as this lives.
class InPart {
 public:
  explicit InPart(const char* part) : before_(position.part) { position.part = part; }
  ~InPart() { position.part = before_; }
  InPart(const InPart&) = delete;
  InPart& operator=(const InPart&) = delete;

 private:
  const char* before_;
};

}  // namespace vulpes
