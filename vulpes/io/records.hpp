// What a run leaves on disk beside its checkpoints: the run folder, its lock, and the metrics of each epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vulpes::io {

/// Writes `text` beside `path` (".tmp"), fsyncs and renames it: a reader sees the old or the new file, never a part.
/// Throws RunError with the system's reason.
void write_file_atomically(const std::string& path, const std::string& text);

/// Reads a whole file. Throws InputError with the system's reason.
std::string read_file(const std::string& path);

/// Shortest text that reads back as the same double; whole numbers without exponent or point.
std::string number_text(double value);

/// Metric names and values of one row; an empty value is an undefined metric.
using Record = std::vector<std::pair<std::string, std::optional<double>>>;

/// Appends rows to `metrics.csv` (absent: empty field) and `metrics.jsonl` (absent: omitted). NaN and infinity are
/// absent. A row is in both files, whole, when `write` returns. The header is that of the first row; a name that comes
/// later is added at its end (the file is rewritten). Throws RunError with the system's reason.
class MetricsWriter {
 public:
  /// `keep_rows`: rows that stay of an interrupted run (the checkpoint's `rows()`); later rows, and a last one that
  /// was only half written, are removed. 0 begins anew.
  explicit MetricsWriter(const std::string& folder, std::int64_t keep_rows = 0);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const Record& record);
  /// Rows in the files: part of a checkpoint.
  std::int64_t rows() const { return rows_; }

 private:
  std::string csv_path_, jsonl_path_;
  std::vector<std::string> header_;
  std::int64_t rows_ = 0;
  int csv_ = -1, jsonl_ = -1;
};

/// A run's folder, held by one training at a time: the lock names process and host; that of a dead process of this
/// host, or of an earlier start of the same Slurm job, is taken over.
class RunFolder {
 public:
  /// Makes the folder. InputError if it exists and is not empty (but for what a start leaves that was killed before
  /// config.toml was written), or is in use; RunError with the system's reason.
  static RunFolder create(const std::string& path);
  /// Opens the folder of an interrupted run. InputError if it holds none, or is in use.
  static RunFolder resume(const std::string& path);
  ~RunFolder();
  RunFolder(RunFolder&&) noexcept;
  RunFolder& operator=(RunFolder&&) noexcept;

  const std::string& path() const { return path_; }
  std::string config() const { return file("config.toml"); }
  std::string metrics_csv() const { return file("metrics.csv"); }
  std::string metrics_jsonl() const { return file("metrics.jsonl"); }
  std::string summary() const { return file("summary.json"); }
  std::string log_file() const { return file("vulpes.log"); }
  /// Folder of the checkpoints; made with the run folder.
  std::string checkpoints() const { return file("checkpoints"); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit RunFolder(std::string path);
  void release() noexcept;

  std::string path_;
  int lock_ = -1;
};

}  // namespace vulpes::io
