// CSV text read slowly and with positions: what the columns mean, and where an error is. The data itself goes through
// Arrow's reader; both split lines alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vulpes/io/table.hpp"

namespace vulpes::io {

struct CsvField {
  std::string text;
  std::int64_t column = 1;  ///< 1-based position of its first character in the line
};

/// Records of a CSV text in order. Empty lines are skipped; values cannot span lines.
class CsvScanner {
 public:
  /// `text` must outlive the scanner; a UTF-8 byte order mark is skipped.
  CsvScanner(std::string_view text, char delimiter);
  /// False at the end of the text.
  bool next(std::vector<CsvField>& fields);
  /// 1-based line of the record that `next` gave.
  std::int64_t line() const { return line_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0;
  char delimiter_;
};

/// The delimiter (comma, semicolon or tab) that the first line has most of.
char detect_delimiter(std::string_view text);

/// Lower case, letters and digits only: "<Open Time>" -> "opentime".
std::string plain_name(std::string_view name);

/// As Arrow reads numbers: surrounding blanks allowed; "" and "NaN" are not numbers.
std::optional<double> parse_number(std::string_view text);
/// Arrow's spellings of a missing value ("", "NA", "NaN", "null", ...).
bool is_missing(std::string_view text);

/// Which column of a file is what; -1: none.
struct ColumnRoles {
  int time = -1;
  int clock = -1;  ///< second half of the time, if it is in two columns
  int symbol = -1;
  int ohlcv[5] = {-1, -1, -1, -1, -1};
  std::vector<int> others;   ///< columns that may be extra features
  std::vector<int> ignored;  ///< further time columns and unnamed ones
};
constexpr const char* ohlcv_names[5] = {"open", "high", "low", "close", "volume"};

/// Finds the roles by name. `first_values`: the first data row as text (may be empty), to tell a clock from a time.
/// Throws InputError that begins with `place`.
ColumnRoles find_roles(const std::vector<std::string>& names, const std::vector<std::string>& first_values,
                       const ImportOptions& options, const std::string& place);

/// `bars.csv:3:21` of a data row (1-based) and column of a CSV file, with the field's text.
struct CsvPlace {
  std::string place, text;
};
std::optional<CsvPlace> find_csv_place(const std::string& path, std::int64_t row, int column);

/// True if the file begins as a Parquet file does.
bool is_parquet(const std::string& path);

}  // namespace vulpes::io
