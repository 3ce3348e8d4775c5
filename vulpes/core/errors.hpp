// Errors that reach the user: one line that says what is wrong, where, and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace vulpes {

/// Exit codes of the command line (docs/cli.md).
enum class ExitCode : int { done = 0, failed = 1, bad_usage = 2, interrupted = 75 };

/// Bad usage, configuration or data: the user can mend the input. Leads to exit code 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something failed although the input was right: a disk, a device, a diverged training. Exit code 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws `Error{message}` when `condition` holds.
template <class Error>
void throw_if(bool condition, const std::string& message) {
  if (condition) throw Error(message);
}

}  // namespace vulpes
