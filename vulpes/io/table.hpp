// Tables of bars as they stand in a file, before any judgement of prices (market/ does that).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vulpes::io {

/// Columns of a CSV or Parquet file. Entries of one symbol are contiguous (symbols in the order of their first row)
/// and strictly increasing in time; no value is NaN or infinite.
struct Table {
  struct Column {
    std::string name;  ///< "open", "high", "low", "close", "volume"; further columns as the file spells them
    std::vector<double> values;
  };

  std::vector<std::int64_t> time_ns;  ///< UTC, nanoseconds since 1970-01-01T00:00Z
  std::vector<Column> columns;        ///< open, high, low, close, volume, then the extra ones in file order
  std::vector<std::string> symbol;    ///< one an entry; empty: the file has no symbol column
  std::vector<std::int64_t> row;      ///< 1-based data row of each entry in the file
  std::string source;                 ///< path of the file
  bool has_volume = true;             ///< false: the file has none and `volume` is all zero
  std::vector<std::string> warnings;  ///< what was ignored, one line each

  std::size_t size() const { return time_ns.size(); }
  /// The column of that exact name, or nullptr.
  const Column* find(const std::string& name) const;
  /// Where entry `entry` stands, for messages: `bars.csv:3:21: row 2, column 'close'`, or `bars.parquet: row 2,
  /// column 'close'`. Reads a CSV file again to find line and column: for error paths only.
  std::string where(std::size_t entry, const std::string& column) const;
};

struct ImportOptions {
  std::string duplicates = "error";  ///< bars with the same time: "error", or keep the "first" or "last"
  std::string time_column;           ///< empty: found by its name
  std::string symbol_column;         ///< empty: `symbol` or `ticker` if there is one
  std::string timezone = "UTC";      ///< of times without an offset: "UTC" or "+hh:mm"
};

/// Reads bars from a CSV or Parquet file (told apart by content). Column names in any case and punctuation; time as
/// ISO 8601 or as an epoch in s, ms, us or ns (told apart by magnitude); `date` and `time` may be two columns; an
/// unnamed first column is the time. Numeric columns beyond OHLCV are kept, others ignored with a warning.
/// Throws InputError with file, line and column.
Table read_bars_table(const std::string& path, const ImportOptions& options = {});

/// Writes the table as Parquet (`time` as timestamp[ns, UTC]), atomically; read_bars_table gives the equal table.
/// Throws RunError.
void write_parquet(const Table& table, const std::string& path);

}  // namespace vulpes::io
