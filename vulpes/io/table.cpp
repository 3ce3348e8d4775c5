#include "vulpes/io/table.hpp"

#include <algorithm>
#include <filesystem>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/csv_text.hpp"
#include "vulpes/io/records.hpp"

namespace vulpes::io {

const Table::Column* Table::find(const std::string& name) const {
  const auto at = std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
  return at == columns.end() ? nullptr : &*at;
}

std::string Table::where(std::size_t entry, const std::string& column) const {
  const std::int64_t data_row = entry < row.size() ? row[entry] : static_cast<std::int64_t>(entry) + 1;
  const std::string text = std::string(": row ").append(std::to_string(data_row)) + ", column '" + column + "'";
  if (!std::filesystem::is_regular_file(source) || is_parquet(source)) return source + text;
  try {
    const std::string csv = read_file(source);
    CsvScanner scanner(csv, detect_delimiter(csv));
    std::vector<CsvField> fields;
    if (!scanner.next(fields)) return source + text;
    int index = -1;
    for (int k = 0; k < static_cast<int>(fields.size()) && index < 0; ++k) {
      const std::string& name = fields[static_cast<std::size_t>(k)].text;
      if (name == column || plain_name(name) == column || (column == "volume" && plain_name(name) == "vol")) index = k;
    }
    if (index < 0 && column == "time") index = 0;
    if (const auto place = find_csv_place(source, data_row, index)) return place->place + text;
  } catch (const InputError&) {
    // The file is gone or unreadable by now: the row alone must do.
  }
  return source + text;
}

}  // namespace vulpes::io
