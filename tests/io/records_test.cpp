#include "vulpes/io/records.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "temporary_folder.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/io/progress.hpp"

namespace vulpes::io {
namespace {

class Records : public TemporaryFolder {
 protected:
  std::string csv() const { return read(path("metrics.csv")); }
  std::string jsonl() const { return read(path("metrics.jsonl")); }
};

TEST_F(Records, NumbersAreShortAndExact) {
  EXPECT_EQ(number_text(12000), "12000");
  EXPECT_EQ(number_text(1e6), "1000000");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(-0.0), "-0");
  EXPECT_EQ(number_text(1e300), "1e+300");
  for (const double v : {1.0 / 3, 1e-320, 123456789.125, 9007199254740993.0, -2.5e17})
    EXPECT_EQ(std::strtod(number_text(v).c_str(), nullptr), v);
}

TEST_F(Records, AbsentAndNonFiniteValuesAreNeverWritten) {
  MetricsWriter writer(folder());
  writer.write({{"step", 1000.0}, {"loss", 0.25}, {"sharpe", std::nullopt}});
  writer.write({{"step", 2000.0}, {"loss", std::numeric_limits<double>::quiet_NaN()}, {"sharpe", 1.5}});
  writer.write({{"sharpe", std::numeric_limits<double>::infinity()}, {"step", 3000.0}});
  EXPECT_EQ(csv(), "step,loss,sharpe\n1000,0.25,\n2000,,1.5\n3000,,\n");
  EXPECT_EQ(jsonl(), "{\"step\": 1000, \"loss\": 0.25}\n{\"step\": 2000, \"sharpe\": 1.5}\n{\"step\": 3000}\n");
  EXPECT_EQ(writer.rows(), 3);
}

TEST_F(Records, ALaterNameIsAddedAtTheEndOfTheHeader) {
  MetricsWriter writer(folder());
  writer.write({{"step", 1.0}});
  writer.write({{"new", 2.0}, {"step", 2.0}});
  writer.write({{"step", 3.0}});
  EXPECT_EQ(csv(), "step,new\n1,\n2,2\n3,\n");
  EXPECT_THROW(writer.write({{"a,b", 1.0}}), std::logic_error);
}

TEST_F(Records, ResumingKeepsTheCheckpointsRowsAndDropsTheRest) {
  {
    MetricsWriter writer(folder());
    for (int k = 1; k <= 4; ++k) writer.write({{"step", k}, {"loss", k * 0.5}});
  }
  MetricsWriter writer(folder(), 2);
  EXPECT_EQ(writer.rows(), 2);
  EXPECT_EQ(csv(), "step,loss\n1,0.5\n2,1\n");
  writer.write({{"loss", 7.0}, {"step", 3.0}});
  EXPECT_EQ(csv(), "step,loss\n1,0.5\n2,1\n3,7\n");
  EXPECT_EQ(jsonl(), "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"loss\": 1}\n{\"loss\": 7, \"step\": 3}\n");
}

TEST_F(Records, AHalfWrittenRowOfAKilledRunIsDropped) {
  write("metrics.csv", "step,loss\n1,0.5\n2,1\n3,1.");
  write("metrics.jsonl", "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"loss\": 1}\n");
  MetricsWriter writer(folder(), 3);
  EXPECT_EQ(writer.rows(), 2);
  writer.write({{"step", 3.0}, {"loss", 1.5}});
  EXPECT_EQ(csv(), "step,loss\n1,0.5\n2,1\n3,1.5\n");
  // Killed between the two files: both keep what both have.
  write("metrics.jsonl", "{\"step\": 1, \"loss\": 0.5}\n{\"st");
  MetricsWriter again(folder(), 3);
  EXPECT_EQ(again.rows(), 1);
  EXPECT_EQ(csv(), "step,loss\n1,0.5\n");
  EXPECT_EQ(jsonl(), "{\"step\": 1, \"loss\": 0.5}\n");
}

TEST_F(Records, WithoutRowsToKeepTheFilesBeginAnew) {
  write("metrics.csv", "old\n1\n");
  MetricsWriter writer(folder());
  EXPECT_EQ(csv(), "");
  writer.write({{"step", 1.0}});
  EXPECT_EQ(csv(), "step\n1\n");
}

TEST_F(Records, FilesAreReplacedWhole) {
  write("summary.json", "old");
  write_file_atomically(path("summary.json"), "new");
  EXPECT_EQ(read(path("summary.json")), "new");
  EXPECT_FALSE(std::filesystem::exists(path("summary.json.tmp")));
  EXPECT_EQ(error_of<RunError>([&] { write_file_atomically(path("none/a"), "x"); }),
            "cannot write none/a: No such file or directory");
  std::filesystem::create_directory(path("folder"));
  EXPECT_EQ(error_of<RunError>([&] { write_file_atomically(path("folder"), "x"); }),
            "cannot write folder: Is a directory");
  EXPECT_FALSE(std::filesystem::exists(path("folder.tmp")));
}

TEST_F(Records, ARunFolderIsMadeOnce) {
  const std::string run = path("runs/a");
  {
    const RunFolder made = RunFolder::create(run);
    EXPECT_EQ(shortened(made.config()), "runs/a/config.toml");
    EXPECT_EQ(shortened(made.metrics_csv()), "runs/a/metrics.csv");
    EXPECT_EQ(shortened(made.metrics_jsonl()), "runs/a/metrics.jsonl");
    EXPECT_EQ(shortened(made.summary()), "runs/a/summary.json");
    EXPECT_TRUE(std::filesystem::is_directory(made.checkpoints()));
    write_file_atomically(made.config(), "");
  }
  EXPECT_FALSE(std::filesystem::exists(run + "/.lock"));
  EXPECT_EQ(error_of<InputError>([&] { RunFolder::create(run); }),
            "runs/a exists and is not empty: choose another folder, or resume the run in it");
  EXPECT_NO_THROW(RunFolder::resume(run));
  EXPECT_EQ(error_of<InputError>([&] { RunFolder::resume(path("runs/b")); }),
            "runs/b holds no run to resume (no config.toml in it); leave --resume away to start one");
}

TEST_F(Records, WhatAKilledStartLeavesIsNoObstacle) {
  const std::string run = path("run");
  {
    const RunFolder killed = RunFolder::create(run);
    write("run/vulpes.log", "info: started\n");
    write("run/config.toml.tmp", "[ru");
  }
  EXPECT_NO_THROW(RunFolder::create(run));
  for (const char* more : {"run/config.toml", "run/notes.txt", "run/checkpoints/fold-1-best.h5"}) {
    write(more, "");
    EXPECT_EQ(error_of<InputError>([&] { RunFolder::create(run); }),
              "run exists and is not empty: choose another folder, or resume the run in it");
    std::filesystem::remove(path(more));
  }
}

TEST_F(Records, TwoTrainingsCannotShareAFolder) {
  RunFolder first = RunFolder::create(path("run"));
  write_file_atomically(first.config(), "");
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string who = "process " + std::to_string(::getpid()) + " on " + host;
  const std::string message =
      "run is in use by " + who + ": wait for it, choose another folder, or remove run/.lock if that run has ended";
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(error_of<InputError>([&] { RunFolder::resume(path("run")); }), message);
  RunFolder moved = std::move(first);
  EXPECT_EQ(error_of<InputError>([&] { RunFolder::resume(path("run")); }), message);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      RunFolder::resume(path("run"));
    } catch (const InputError&) {
      ::_exit(7);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(std::filesystem::exists(path("run/.lock")));
}

TEST_F(Records, TheLockOfAKilledProcessIsTakenOver) {
  std::filesystem::create_directory(path("run"));
  write("run/config.toml", "");
  const pid_t child = ::fork();
  if (child == 0) {
    const RunFolder held = RunFolder::resume(path("run"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_NE(read(path("run/.lock")).find("pid " + std::to_string(child) + "\n"), std::string::npos);
  const RunFolder taken = RunFolder::resume(path("run"));
  EXPECT_NE(read(path("run/.lock")).find("pid " + std::to_string(::getpid()) + "\n"), std::string::npos);
}

TEST_F(Records, LocksOfOtherHostsHoldUnlessTheSlurmJobWasRestarted) {
  std::filesystem::create_directory(path("run"));
  write("run/config.toml", "");
  const std::string other = "pid 1\nhost elsewhere\nprocess_start 5\njob 42\njob_start 0\n";
  const auto resume = [&] { RunFolder::resume(path("run")); };
  write("run/.lock", other);
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(error_of<InputError>(resume),
            "run is in use by process 1 on elsewhere (Slurm job 42): wait for it, choose another folder, or remove "
            "run/.lock if "
            "that run has ended");
  ::setenv("SLURM_JOB_ID", "42", 1);
  EXPECT_NE(error_of<InputError>(resume), "no error");
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_EQ(error_of<InputError>(resume), "no error");
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_RESTART_COUNT");
}

/// A process number that was given again belongs to another process: its start time differs.
TEST_F(Records, AReusedProcessNumberIsNoHolder) {
  std::filesystem::create_directory(path("run"));
  write("run/config.toml", "");
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  write("run/.lock",
        "pid " + std::to_string(::getppid()) + "\nhost " + host + "\nprocess_start 1\njob \njob_start 0\n");
  EXPECT_NO_THROW(RunFolder::resume(path("run")));
}

class ProgressOutput : public TemporaryFolder {
 protected:
  ProgressOutput() : file_(std::fopen(path("out").c_str(), "w")) {}
  ~ProgressOutput() override { std::fclose(file_); }
  ProgressOptions options(bool terminal) {
    ProgressOptions options;
    options.stream = file_;
    options.terminal = terminal;
    options.clock = [this] { return now_; };
    return options;
  }
  std::string output() {
    std::fflush(file_);
    return read(path("out"));
  }
  double now_ = 100;
  std::FILE* file_;
};

TEST_F(ProgressOutput, LinesElsewhereThanOnATerminal) {
  Progress progress("training", 1000, 0, options(false));
  progress.update(10);
  EXPECT_EQ(output(), "");
  now_ += 40;
  progress.update(200, "loss 1.93");
  EXPECT_EQ(output(), "training 200/1000 (20 %), 5/s, 2 min 40 s left, loss 1.93\n");
  now_ += 10;
  progress.update(300, "loss 1.9");
  now_ += 150;
  progress.update(1000, "loss 1.5");
  progress.finish();
  progress.finish();
  EXPECT_EQ(output(),
            "training 200/1000 (20 %), 5/s, 2 min 40 s left, loss 1.93\n"
            "training 1000/1000 (100 %), 5/s, 0 s left, loss 1.5\n"
            "training 1000/1000 (100 %), 5/s, took 3 min 20 s, loss 1.5\n");
}

TEST_F(ProgressOutput, ABarOnATerminal) {
  {
    Progress progress("training", 12, 6, options(true));
    now_ += 1;
    progress.update(9);
  }
  EXPECT_EQ(output(),
            "\rtraining [##################......] 9/12 (75 %), 3/s, 1 s left\033[K"
            "\rtraining [##################......] 9/12 (75 %), 3/s, took 1 s\033[K\n");
}

TEST_F(Records, ALogLineClearsTheBarBeforeIt) {
  testing::internal::CaptureStderr();
  ProgressOptions options;
  options.terminal = true;
  options.clock = [] { return 0.0; };
  options.bar_seconds = 0;
  Progress progress("p", 2, 0, options);
  progress.update(1);
  log()->info("one");
  log()->info("two");
  progress.finish();
  const std::string bar = "\rp [############............] 1/2 (50 %)\033[K";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), bar + "\r\033[Kinfo: one\ninfo: two\n" + bar + "\n");
}

TEST_F(Records, LogGoesToStderrAndToTheFile) {
  testing::internal::CaptureStderr();
  start_logging("info", path("vulpes.log"));
  log()->debug("unseen");
  log()->info("seen {}", 1);
  start_logging("debug", path("vulpes.log"));
  log()->debug("appended");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "info: seen 1\ndebug: appended\n");
  const std::string text = read(path("vulpes.log"));
  EXPECT_EQ(text.find("unseen"), std::string::npos);
  EXPECT_NE(text.find(" info: seen 1\n2"), std::string::npos) << text;
  EXPECT_NE(text.find(" debug: appended\n"), std::string::npos) << text;
  EXPECT_EQ(error_of<InputError>([] { start_logging("loud"); }),
            "log level 'loud' is none of trace, debug, info, warn, error, off");
  write("file", "");
  EXPECT_EQ(error_of<RunError>([&] { start_logging("info", path("file/x")); }),
            "cannot write log file/x: Not a directory");
  start_logging("info");
}

}  // namespace
}  // namespace vulpes::io
