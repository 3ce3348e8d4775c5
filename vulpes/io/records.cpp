#include "vulpes/io/records.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/durable.hpp"

namespace vulpes::io {
namespace {

/// Lines of a text that are complete (end in a newline), without the newline.
std::vector<std::string> complete_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(line);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// Names appear unquoted in CSV and JSON.
void require_plain(const std::string& name) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-'; };
  throw_if<std::logic_error>(name.empty() || !std::all_of(name.begin(), name.end(), plain),
                             "metric name '" + name + "' has characters other than letters, digits, _ . / -");
}

int open_for_append(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) fail_with_errno("cannot write " + path);
  return file;
}

std::string header_line(const std::vector<std::string>& header) {
  std::string line;
  for (const std::string& name : header) line += (line.empty() ? "" : ",") + name;
  return line + "\n";
}

/// Who holds a run folder.
struct Holder {
  long pid = 0;
  std::string host, process_start, job, job_start;

  static Holder self() {
    const auto environment = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string restarts = environment("SLURM_RESTART_COUNT");
    return {::getpid(), host, start_of(::getpid()), environment("SLURM_JOB_ID"), restarts.empty() ? "0" : restarts};
  }

  /// Start time of a process in ticks since boot; empty when there is no such process. Tells a process from a later
  /// one with the same number.
  static std::string start_of(long pid) {
    std::string text;
    try {
      text = read_file("/proc/" + std::to_string(pid) + "/stat");
    } catch (const InputError&) {
      return {};
    }
    // The name, in parentheses, may hold anything; field 22 is the 20th after it.
    const std::vector<std::string> fields = split(text.substr(text.rfind(')') + 2), ' ');
    return fields.size() > 19 ? fields[19] : "";
  }

  static Holder parse(const std::string& text) {
    Holder holder;
    for (const std::string& line : complete_lines(text)) {
      const std::size_t space = line.find(' ');
      if (space == std::string::npos) continue;
      const std::string key = line.substr(0, space), value = line.substr(space + 1);
      if (key == "pid") holder.pid = std::strtol(value.c_str(), nullptr, 10);
      if (key == "host") holder.host = value;
      if (key == "process_start") holder.process_start = value;
      if (key == "job") holder.job = value;
      if (key == "job_start") holder.job_start = value;
    }
    return holder;
  }

  std::string text() const {
    return "pid " + std::to_string(pid) + "\nhost " + host + "\nprocess_start " + process_start + "\njob " + job +
           "\njob_start " + job_start + "\n";
  }

  /// False only if the holder cannot be running any more.
  bool may_run(const Holder& self) const {
    if (pid == 0) return false;
    if (host == self.host)
      return (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM) && start_of(pid) == process_start;
    return job.empty() || job != self.job || job_start == self.job_start;
  }
};

std::string lock_path(const std::string& folder) { return folder + "/.lock"; }

/// True for an entry of a run folder that may be there before config.toml is.
bool precedes_config(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (name == "checkpoints") return std::filesystem::is_directory(entry) && std::filesystem::is_empty(entry.path());
  return name == ".lock" || name == "vulpes.log" || name == "config.toml.tmp";
}

}  // namespace

void fail_with_errno(const std::string& what) { throw RunError(what + ": " + std::strerror(errno)); }

void sync_folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail_with_errno("cannot open folder " + folder);
  // Some network file systems refuse fsync of a folder; there is then nothing more to do.
  const bool failed = ::fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP;
  const int reason = errno;
  ::close(file);
  errno = reason;
  if (failed) fail_with_errno("cannot write folder " + folder);
}

void write_all(int file, const void* data, std::size_t bytes, const std::string& path) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("cannot write " + path);
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void put_in_place(const std::string& temporary, const std::string& path) {
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail_with_errno("cannot write " + path);
  sync_folder_of(path);
}

void write_file_atomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail_with_errno("cannot write " + path);
  try {
    write_all(file, text.data(), text.size(), path);
    if (::fsync(file) != 0) fail_with_errno("cannot write " + path);
  } catch (...) {
    ::close(file);
    ::unlink(temporary.c_str());
    throw;
  }
  ::close(file);
  try {
    put_in_place(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::string read_file(const std::string& path) {
  const auto fail = [&] { throw InputError("cannot read " + path + ": " + std::strerror(errno)); };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail();
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int reason = errno;
      ::close(file);
      errno = reason;
      fail();
    }
    if (got == 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(file);
  return text;
}

std::string number_text(double value) {
  char text[64];
  const bool whole = std::abs(value) < 1e15 && value == std::floor(value) && !(value == 0 && std::signbit(value));
  const auto end = whole ? std::to_chars(text, text + sizeof text, static_cast<std::int64_t>(value)).ptr
                         : std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

MetricsWriter::MetricsWriter(const std::string& folder, std::int64_t keep_rows)
    : csv_path_(folder + "/metrics.csv"), jsonl_path_(folder + "/metrics.jsonl") {
  std::vector<std::string> csv, jsonl;
  if (keep_rows > 0 && std::filesystem::exists(csv_path_) && std::filesystem::exists(jsonl_path_)) {
    csv = complete_lines(read_file(csv_path_));
    jsonl = complete_lines(read_file(jsonl_path_));
  }
  const std::size_t csv_rows = csv.empty() ? 0 : csv.size() - 1;
  const std::size_t keep =
      std::min({csv_rows, jsonl.size(), static_cast<std::size_t>(std::max<std::int64_t>(keep_rows, 0))});
  std::string csv_text, jsonl_text;
  if (keep > 0) {
    header_ = split(csv[0], ',');
    for (std::size_t k = 0; k <= keep; ++k) csv_text += csv[k] + "\n";
    for (std::size_t k = 0; k < keep; ++k) jsonl_text += jsonl[k] + "\n";
  }
  rows_ = static_cast<std::int64_t>(keep);
  write_file_atomically(csv_path_, csv_text);
  write_file_atomically(jsonl_path_, jsonl_text);
  csv_ = open_for_append(csv_path_);
  jsonl_ = open_for_append(jsonl_path_);
}

MetricsWriter::~MetricsWriter() {
  if (csv_ >= 0) ::close(csv_);
  if (jsonl_ >= 0) ::close(jsonl_);
}

void MetricsWriter::write(const Record& record) {
  const bool first = header_.empty();
  const std::size_t known = header_.size();
  for (const auto& [name, value] : record) {
    require_plain(name);
    if (std::find(header_.begin(), header_.end(), name) == header_.end()) header_.push_back(name);
  }
  if (!first && header_.size() > known) {
    const std::string more(header_.size() - known, ',');
    std::vector<std::string> lines = complete_lines(read_file(csv_path_));
    std::string text = header_line(header_);
    for (std::size_t k = 1; k < lines.size(); ++k) text += lines[k] + more + "\n";
    write_file_atomically(csv_path_, text);
    ::close(csv_);
    csv_ = open_for_append(csv_path_);
  }

  std::vector<std::string> fields(header_.size());
  std::string json;
  for (const auto& [name, value] : record) {
    if (!value || !std::isfinite(*value)) continue;
    const std::string number = number_text(*value);
    fields[static_cast<std::size_t>(std::find(header_.begin(), header_.end(), name) - header_.begin())] = number;
    json += (json.empty() ? "{\"" : ", \"") + name + "\": " + number;
  }
  json = (json.empty() ? "{" : json) + "}\n";
  std::string row = first ? header_line(header_) : "";
  for (std::size_t k = 0; k < fields.size(); ++k) row += (k == 0 ? "" : ",") + fields[k];
  row += "\n";
  write_all(csv_, row.data(), row.size(), csv_path_);
  write_all(jsonl_, json.data(), json.size(), jsonl_path_);
  ++rows_;
}

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  const Holder self = Holder::self();
  const std::string file = lock_path(path_);
  const auto in_use = [&](const Holder& holder) {
    std::string who =
        holder.pid == 0 ? "another process" : "process " + std::to_string(holder.pid) + " on " + holder.host;
    if (!holder.job.empty()) who += " (Slurm job " + holder.job + ")";
    throw InputError(path_ + " is in use by " + who + ": wait for it, choose another folder, or remove " + file +
                     " if that run has ended");
  };
  for (;;) {
    lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) fail_with_errno("cannot write " + file);
    // The advisory lock decides between processes of one host (and of all hosts where the file system supports it);
    // the content decides where it does not, and survives a killed process.
    const bool locked = ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
    const bool unsupported = !locked && errno != EWOULDBLOCK;
    const Holder holder = Holder::parse(read_file(file));
    if ((!locked && !unsupported) || holder.may_run(self)) {
      ::close(lock_);
      lock_ = -1;
      in_use(holder);
    }
    // Another process may have removed the file between open and lock.
    struct stat by_name, by_handle;
    if (::stat(file.c_str(), &by_name) == 0 && ::fstat(lock_, &by_handle) == 0 && by_name.st_ino == by_handle.st_ino)
      break;
    ::close(lock_);
    lock_ = -1;
  }
  try {
    const std::string text = self.text();
    if (::ftruncate(lock_, 0) != 0) fail_with_errno("cannot write " + file);
    write_all(lock_, text.data(), text.size(), file);
    std::error_code error;
    std::filesystem::create_directories(checkpoints(), error);
    if (error) throw RunError("cannot make folder " + checkpoints() + ": " + error.message());
  } catch (...) {
    release();
    throw;
  }
}

RunFolder RunFolder::create(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw RunError("cannot make folder " + path + ": " + error.message());
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (precedes_config(entry)) continue;
    throw InputError(path + " exists and is not empty: choose another folder, or resume the run in it");
  }
  return RunFolder(path);
}

RunFolder RunFolder::resume(const std::string& path) {
  throw_if<InputError>(!std::filesystem::exists(path + "/config.toml"),
                       path + " holds no run to resume (no config.toml in it); leave --resume away to start one");
  return RunFolder(path);
}

void RunFolder::release() noexcept {
  if (lock_ < 0) return;
  ::unlink(lock_path(path_).c_str());
  ::close(lock_);
  lock_ = -1;
}

RunFolder::~RunFolder() { release(); }

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::move(other.path_);
    lock_ = std::exchange(other.lock_, -1);
  }
  return *this;
}

}  // namespace vulpes::io
