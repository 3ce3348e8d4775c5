// The command line: subcommands, exit codes, messages.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>

#include "vulpes/app/commands.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/trainer/trainer.hpp"

namespace {

using vulpes::ExitCode;

void on_signal(int) { vulpes::trainer::request_stop(); }

/// SIGUSR1 (Slurm's notice), SIGTERM and SIGINT: checkpoint, then exit 75. A second SIGINT ends the program at once.
void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR1, SIGTERM}) sigaction(signal, &action, nullptr);
  action.sa_flags |= static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

/// One message a problem, each on its own line, on stderr.
void report(const std::string& message) {
  std::size_t begin = 0;
  while (begin < message.size()) {
    const std::size_t end = std::min(message.find('\n', begin), message.size());
    std::fprintf(stderr, "vulpes: %s\n", message.substr(begin, end - begin).c_str());
    begin = end + 1;
  }
}

/// Standard streams that the caller closed become /dev/null, so that no file of ours can get their numbers.
void occupy_standard_streams() {
  int descriptor = open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

/// What was printed must have arrived: a full disk behind stdout is a failure like any other.
ExitCode with_output_written(ExitCode code) {
  vulpes::throw_if<vulpes::RunError>(std::fflush(stdout) != 0 || std::ferror(stdout) != 0,
                                     "cannot write to standard output: the disk is full or the reader has gone");
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  CLI::App app{"Vulpes trains trading agents: a branching dueling double DQN with C51 heads and prioritised replay."};
  app.set_version_flag("--version", vulpes::app::version_text());
  app.require_subcommand(1);
  app.fallthrough(false);
  app.failure_message([](const CLI::App* root, const CLI::Error& e) {
    const auto unknown = root->remaining();
    const bool named = root->get_subcommands().empty() && !unknown.empty();
    return "vulpes: " + (named ? "there is no subcommand or option '" + unknown.front() + "'" : std::string(e.what())) +
           "; 'vulpes --help' lists what there is\n";
  });
  app.get_formatter()->column_width(34);
  std::function<ExitCode()> command;
  int threads = 0;
  std::string log_level = "info";
  app.add_option("--threads", threads, "host threads; 0: all cores")->check(CLI::Range(0, 4096));
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")->capture_default_str();
  vulpes::app::add_train(app, command, log_level);
  vulpes::app::add_evaluate(app, command);
  vulpes::app::add_data(app, command);
  vulpes::app::add_step(app, command);
  vulpes::app::add_audit(app, command);
  vulpes::app::add_info(app, command);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : static_cast<int>(ExitCode::bad_usage);
  }
  install_signal_handlers();
  try {
    const vulpes::Runtime runtime(argv, threads);
    vulpes::app::start_logging(log_level);
    return static_cast<int>(with_output_written(command()));
  } catch (const vulpes::InputError& e) {
    report(e.what());
    return static_cast<int>(ExitCode::bad_usage);
  } catch (const std::bad_alloc&) {
    report("out of memory; 'vulpes info --estimate' with the same settings says what a run needs");
    return static_cast<int>(ExitCode::failed);
  } catch (const std::exception& e) {
    report(e.what());
    return static_cast<int>(ExitCode::failed);
  }
}
