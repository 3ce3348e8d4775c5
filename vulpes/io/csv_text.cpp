#include "vulpes/io/csv_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/records.hpp"

namespace vulpes::io {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

std::string_view without_mark(std::string_view text) {
  return text.substr(0, 3) == byte_order_mark ? text.substr(3) : text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// hh:mm with nothing of a date.
bool is_clock(const std::string& text) {
  return text.find(':') != std::string::npos && text.find_first_of("-/T") == std::string::npos;
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace

CsvScanner::CsvScanner(std::string_view text, char delimiter) : text_(without_mark(text)), delimiter_(delimiter) {}

bool CsvScanner::next(std::vector<CsvField>& fields) {
  std::string_view line;
  do {
    if (at_ >= text_.size()) return false;
    std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) end = text_.size();
    line = text_.substr(at_, end - at_);
    at_ = end + 1;
    ++line_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  } while (line.empty());

  fields.clear();
  std::size_t k = 0;
  for (;;) {
    CsvField field;
    field.column = static_cast<std::int64_t>(k) + 1;
    if (k < line.size() && line[k] == '"') {
      for (++k; k < line.size(); ++k) {
        if (line[k] != '"') {
          field.text += line[k];
        } else if (k + 1 < line.size() && line[k + 1] == '"') {
          field.text += line[k++];
        } else {
          ++k;
          break;
        }
      }
    }
    while (k < line.size() && line[k] != delimiter_) field.text += line[k++];
    fields.push_back(std::move(field));
    if (k >= line.size()) return true;
    ++k;
  }
}

char detect_delimiter(std::string_view text) {
  text = without_mark(text);
  while (!text.empty() && (text.front() == '\n' || text.front() == '\r')) text.remove_prefix(1);
  const std::string_view line = text.substr(0, text.find('\n'));
  char best = ',';
  std::ptrdiff_t most = std::count(line.begin(), line.end(), ',');
  for (const char c : {';', '\t'}) {
    const auto count = std::count(line.begin(), line.end(), c);
    if (count > most) {
      best = c;
      most = count;
    }
  }
  return best;
}

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') plain += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80) plain += c;
  }
  return plain;
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Out of range: Arrow rounds to 0 or infinity; the reader's check for finite values has the last word.
  if (error == std::errc::invalid_argument || end != text.data() + text.size() || value != value) return {};
  return value;
}

bool is_missing(std::string_view text) {
  constexpr std::string_view spellings[] = {"",     "#N/A", "#N/A N/A", "#NA",     "-1.#IND", "-1.#QNAN",
                                            "-NaN", "-nan", "1.#IND",   "1.#QNAN", "N/A",     "NA",
                                            "NULL", "NaN",  "n/a",      "nan",     "null"};
  return std::find(std::begin(spellings), std::end(spellings), text) != std::end(spellings);
}

ColumnRoles find_roles(const std::vector<std::string>& names, const std::vector<std::string>& first_values,
                       const ImportOptions& options, const std::string& place) {
  const int count = static_cast<int>(names.size());
  std::vector<std::string> plain;
  for (const std::string& name : names) plain.push_back(plain_name(name));
  ColumnRoles roles;

  const auto find = [&](const std::string& wanted) {
    int found = -1;
    for (int k = 0; k < count; ++k) {
      if (plain[k] != wanted) continue;
      if (found >= 0) throw InputError(place + ": two columns '" + names[found] + "' and '" + names[k] + "'");
      found = k;
    }
    return found;
  };
  const auto find_exactly = [&](const std::string& wanted) {
    for (int k = 0; k < count; ++k) {
      if (names[k] == wanted) return k;
    }
    const int k = find(plain_name(wanted));
    throw_if<InputError>(k < 0, place + ": no column '" + wanted + "' (found " + quoted_list(names) + ")");
    return k;
  };

  for (int f = 0; f < 5; ++f) roles.ohlcv[f] = find(ohlcv_names[f]);
  if (roles.ohlcv[4] < 0) roles.ohlcv[4] = find("vol");
  for (int f = 0; f < 4; ++f) {
    throw_if<InputError>(roles.ohlcv[f] < 0, place + ": no column '" + ohlcv_names[f] + "' (found " +
                                                 quoted_list(names) + "; needed: time, open, high, low, close)");
  }

  if (!options.time_column.empty()) {
    roles.time = find_exactly(options.time_column);
  } else {
    for (const char* name : {"timestamp", "datetime", "opentime", "date", "time", "unix"}) {
      roles.time = find(name);
      if (roles.time >= 0) break;
    }
    if (roles.time >= 0 && plain[roles.time] == "date") {
      const int time = find("time");
      const bool shown = time >= 0 && time < static_cast<int>(first_values.size());
      if (shown && is_clock(first_values[time])) {
        roles.clock = time;
      } else if (time >= 0) {
        roles.time = time;
      }
    }
    if (roles.time < 0 && count > 0 && plain[0].empty()) roles.time = 0;
    // What pandas calls an index that it stores.
    if (roles.time < 0) roles.time = find("indexlevel0");
    throw_if<InputError>(roles.time < 0, place + ": no time column (found " + quoted_list(names) +
                                             "; looked for time, timestamp, date, datetime and an unnamed first one)");
  }
  if (!options.symbol_column.empty()) {
    roles.symbol = find_exactly(options.symbol_column);
  } else {
    roles.symbol = find("symbol");
    if (roles.symbol < 0) roles.symbol = find("ticker");
  }

  for (int k = 0; k < count; ++k) {
    const bool used = k == roles.time || k == roles.clock || k == roles.symbol ||
                      std::find(std::begin(roles.ohlcv), std::end(roles.ohlcv), k) != std::end(roles.ohlcv);
    if (used) continue;
    const std::string& p = plain[k];
    const bool unnamed = p.empty() || p == "unnamed0";
    // A second time or a row number would only teach the network where in history it is.
    const bool time_like = p == "unix" || ends_with(p, "time") || ends_with(p, "timestamp") || ends_with(p, "date");
    (unnamed || time_like ? roles.ignored : roles.others).push_back(k);
  }
  for (std::size_t a = 0; a < roles.others.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      throw_if<InputError>(names[roles.others[a]] == names[roles.others[b]],
                           place + ": two columns '" + names[roles.others[a]] + "'");
    }
  }
  return roles;
}

std::optional<CsvPlace> find_csv_place(const std::string& path, std::int64_t row, int column) {
  const std::string text = read_file(path);
  CsvScanner scanner(text, detect_delimiter(text));
  std::vector<CsvField> fields;
  for (std::int64_t k = 0; k <= row; ++k) {
    if (!scanner.next(fields)) return {};
  }
  if (column < 0 || column >= static_cast<int>(fields.size())) return {};
  const CsvField& field = fields[static_cast<std::size_t>(column)];
  return CsvPlace{path + ":" + std::to_string(scanner.line()) + ":" + std::to_string(field.column), field.text};
}

bool is_parquet(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  char magic[4] = {};
  const bool parquet = std::fread(magic, 1, 4, file) == 4 && std::memcmp(magic, "PAR1", 4) == 0;
  std::fclose(file);
  return parquet;
}

}  // namespace vulpes::io
