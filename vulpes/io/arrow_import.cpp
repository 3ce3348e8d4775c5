// CSV and Parquet through Apache Arrow. The only file that includes Arrow.
#include <arrow/api.h>
#include <arrow/csv/api.h>
#include <arrow/io/api.h>
#include <arrow/util/compression.h>
#include <fcntl.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/csv_text.hpp"
#include "vulpes/io/durable.hpp"
#include "vulpes/io/records.hpp"
#include "vulpes/io/table.hpp"
#include "vulpes/io/time_text.hpp"

namespace vulpes::io {
namespace {

using Chunks = std::shared_ptr<arrow::ChunkedArray>;

/// How the text of a CSV column is read.
enum class CellKind { number, time, symbol };

/// The first place where the file is not what the columns' kinds ask for: called after Arrow has refused it.
std::string explain_csv(const std::string& path, const std::vector<std::string>& names,
                        const std::vector<std::pair<int, CellKind>>& used, bool epochs) {
  const std::string text = read_file(path);
  CsvScanner scanner(text, detect_delimiter(text));
  std::vector<CsvField> fields;
  scanner.next(fields);
  for (std::int64_t row = 1; scanner.next(fields); ++row) {
    const auto place = [&](const CsvField& field) {
      return path + ":" + std::to_string(scanner.line()) + ":" + std::to_string(field.column) + ": row " +
             std::to_string(row);
    };
    const auto is_header = [&] {
      return fields.size() == names.size() &&
             std::equal(names.begin(), names.end(), fields.begin(), [](const std::string& name, const CsvField& field) {
               return plain_name(name) == plain_name(field.text);
             });
    };
    if (fields.size() != names.size()) {
      return place(fields.back()) + ": " + std::to_string(fields.size()) + " values for " +
             std::to_string(names.size()) + " columns";
    }
    for (const auto& [index, kind] : used) {
      const CsvField& field = fields[static_cast<std::size_t>(index)];
      const std::string& name = names[static_cast<std::size_t>(index)];
      const bool number = kind == CellKind::number || (kind == CellKind::time && epochs);
      if (!number || is_missing(field.text) || parse_number(field.text)) continue;
      const std::string what =
          kind == CellKind::time ? "' is no epoch number as in the rows before" : "' is not a number";
      return place(field) + ", column '" + name + "': '" + field.text + what +
             (is_header() ? " (a second header line?)" : "");
    }
  }
  return {};
}

/// Where something is wrong, for messages: the place in the file and the text there.
class Locator {
 public:
  Locator(std::string path, bool csv) : path_(std::move(path)), csv_(csv) {}
  [[noreturn]] void fail(std::int64_t row, int index, const std::string& column, const std::string& message) const {
    std::string place = path_;
    if (csv_) {
      if (const auto found = find_csv_place(path_, row, index)) place = found->place;
    }
    throw InputError(place + ": row " + std::to_string(row) + ", column '" + column + "': " + message);
  }
  /// The field as the CSV file has it; empty for Parquet.
  std::string text(std::int64_t row, int index) const {
    if (!csv_) return {};
    const auto found = find_csv_place(path_, row, index);
    return found ? found->text : "";
  }

 private:
  std::string path_;
  bool csv_;
};

struct Source {
  std::string path;
  bool csv = true;
  std::vector<std::string> names;  ///< all columns of the file
  ColumnRoles roles;
  std::vector<Chunks> columns;  ///< by index in the file; null: not read
};

[[noreturn]] void fail_with(const std::string& path, const arrow::Status& status) {
  std::string text = status.message();
  text = text.substr(0, text.find('\n'));
  throw InputError(path + ": " + text);
}

template <class T>
T value_or_fail(arrow::Result<T> result, const std::string& path) {
  if (!result.ok()) fail_with(path, result.status());
  return std::move(result).ValueUnsafe();
}

std::shared_ptr<arrow::io::ReadableFile> open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const int reason = errno;
    std::error_code ignored;
    const std::string place = std::filesystem::absolute(path, ignored).string();
    throw InputError("cannot read " + path + ": " + std::strerror(reason) +
                     (reason == ENOENT && place != path ? " (looked at " + place + ")" : ""));
  }
  ::close(file);
  throw_if<InputError>(std::filesystem::is_directory(path), "cannot read " + path + ": it is a folder");
  return value_or_fail(arrow::io::ReadableFile::Open(path), path);
}

bool is_eight_digit_date(const std::string& text) {
  return text.size() == 8 && (text.substr(0, 2) == "19" || text.substr(0, 2) == "20") && parse_time(text).has_value();
}

Source read_csv(const std::string& path, const ImportOptions& options, std::vector<std::string>& warnings) {
  auto file = open_file(path);
  Source source;
  source.path = path;

  // The first megabyte tells what the file is.
  std::string head(std::size_t{1} << 20, '\0');
  head.resize(
      static_cast<std::size_t>(value_or_fail(file->Read(static_cast<std::int64_t>(head.size()), head.data()), path)));
  const std::string start = path + ":1:1: ";
  throw_if<InputError>(head.empty(), start + "the file is empty");
  throw_if<InputError>(head.compare(0, 2, "\xff\xfe") == 0 || head.compare(0, 2, "\xfe\xff") == 0,
                       start + "UTF-16 text: save the file as UTF-8");
  const std::size_t zero = head.find('\0');
  throw_if<InputError>(zero != std::string::npos && zero < 4 && head.size() > 3,
                       start + "UTF-16 text or no text at all: save the file as UTF-8");
  throw_if<InputError>(zero != std::string::npos, start + "neither text (CSV) nor a Parquet file");

  const char delimiter = detect_delimiter(head);
  CsvScanner scanner(head, delimiter);
  std::vector<CsvField> header, first;
  throw_if<InputError>(!scanner.next(header), start + "the file is empty");
  const std::int64_t header_line = scanner.line();
  const std::string header_place = path + ":" + std::to_string(header_line) + ":1";
  for (const CsvField& field : header) source.names.push_back(field.text);
  throw_if<InputError>(std::all_of(header.begin() + (header.size() > 1 ? 1 : 0), header.end(),
                                   [](const CsvField& f) { return parse_number(f.text).has_value(); }),
                       header_place + ": the first line has no column names");
  const bool has_data = scanner.next(first);
  std::vector<std::string> first_values;
  for (const CsvField& field : first) first_values.push_back(field.text);
  source.roles = find_roles(source.names, first_values, options, header_place);
  throw_if<InputError>(!has_data, path + ":" + std::to_string(header_line + 1) + ":1: no bars after the header");
  first_values.resize(source.names.size());

  auto read_options = arrow::csv::ReadOptions::Defaults();
  read_options.block_size = 4 << 20;
  read_options.skip_rows = static_cast<std::int32_t>(header_line);
  // Names of our own: the file's may be empty or repeated.
  const auto key = [](int index) { return std::string("c").append(std::to_string(index)); };
  for (int k = 0; k < static_cast<int>(source.names.size()); ++k) read_options.column_names.push_back(key(k));
  auto parse_options = arrow::csv::ParseOptions::Defaults();
  parse_options.delimiter = delimiter;
  auto convert_options = arrow::csv::ConvertOptions::Defaults();

  std::vector<std::pair<int, CellKind>> used;
  const auto use = [&](int index, CellKind kind, std::shared_ptr<arrow::DataType> type) {
    convert_options.include_columns.push_back(key(index));
    if (type != nullptr) convert_options.column_types[key(index)] = std::move(type);
    used.emplace_back(index, kind);
  };
  const ColumnRoles& roles = source.roles;
  const std::string& first_time = first_values[static_cast<std::size_t>(roles.time)];
  bool epochs = false;
  std::shared_ptr<arrow::DataType> time_type = arrow::utf8();
  if (roles.clock < 0 && parse_number(first_time) && !is_eight_digit_date(first_time)) {
    epochs = true;
    time_type = first_time.find_first_of(".eE") == std::string::npos ? arrow::int64() : arrow::float64();
  }
  use(roles.time, CellKind::time, time_type);
  if (roles.clock >= 0) use(roles.clock, CellKind::symbol, arrow::utf8());
  if (roles.symbol >= 0) use(roles.symbol, CellKind::symbol, arrow::utf8());
  for (const int index : roles.ohlcv) {
    if (index >= 0) use(index, CellKind::number, arrow::float64());
  }
  for (const int index : roles.others) {
    const std::string& value = first_values[static_cast<std::size_t>(index)];
    if (parse_number(value)) {
      use(index, CellKind::number, arrow::float64());
    } else if (is_missing(value)) {
      convert_options.include_columns.push_back(key(index));
    } else {
      warnings.push_back(path + ": column '" + source.names[static_cast<std::size_t>(index)] +
                         "' is not numeric: ignored");
    }
  }
  for (const int index : roles.ignored) {
    warnings.push_back(path + ": column '" + source.names[static_cast<std::size_t>(index)] +
                       "' is a second time or a row number: ignored");
  }

  // The mark before the header is skipped with it.
  if (!file->Seek(0).ok()) throw InputError("cannot read " + path + ": it must be a regular file");
  const auto reader = value_or_fail(arrow::csv::TableReader::Make(arrow::io::default_io_context(), file, read_options,
                                                                  parse_options, convert_options),
                                    path);
  const auto result = reader->Read();
  if (!result.ok()) {
    const std::string explanation = explain_csv(path, source.names, used, epochs);
    if (explanation.empty()) fail_with(path, result.status());
    throw InputError(explanation);
  }
  const std::shared_ptr<arrow::Table>& table = *result;
  source.columns.resize(source.names.size());
  for (int k = 0; k < static_cast<int>(source.names.size()); ++k) {
    source.columns[static_cast<std::size_t>(k)] = table->GetColumnByName(key(k));
  }
  return source;
}

Source read_parquet(const std::string& path, const ImportOptions& options, std::vector<std::string>& warnings) {
  auto file = open_file(path);
  Source source;
  source.path = path;
  source.csv = false;
  std::shared_ptr<arrow::Table> table;
  try {
    auto reader = value_or_fail(parquet::arrow::OpenFile(file, arrow::default_memory_pool()), path);
    reader->set_use_threads(true);
#if ARROW_VERSION_MAJOR >= 24
    table = value_or_fail(reader->ReadTable(), path);
#else
    if (const auto status = reader->ReadTable(&table); !status.ok()) fail_with(path, status);
#endif
  } catch (const parquet::ParquetException& error) {
    throw InputError(path + ": " + error.what());
  }
  for (const auto& field : table->schema()->fields()) source.names.push_back(field->name());
  source.roles = find_roles(source.names, {}, options, path);
  throw_if<InputError>(table->num_rows() == 0, path + ": no bars in the file");
  source.columns = table->columns();
  for (const int index : source.roles.ignored) {
    warnings.push_back(path + ": column '" + source.names[static_cast<std::size_t>(index)] +
                       "' is a second time or a row number: ignored");
  }
  return source;
}

bool is_number_type(const arrow::DataType& type) {
  return arrow::is_integer(type.id()) || type.id() == arrow::Type::FLOAT || type.id() == arrow::Type::DOUBLE ||
         type.id() == arrow::Type::DECIMAL128;
}

template <class ArrowArray>
void append_values(const arrow::Array& array, std::vector<double>& out) {
  const auto& typed = static_cast<const ArrowArray&>(array);
  out.insert(out.end(), typed.raw_values(), typed.raw_values() + typed.length());
}

/// The one copy of a numeric column. Every value must be there and finite.
std::vector<double> numbers_of(const Source& source, int index, const std::string& name) {
  const Chunks& column = source.columns[static_cast<std::size_t>(index)];
  const Locator locator(source.path, source.csv);
  const std::shared_ptr<arrow::DataType> type = column->type();
  throw_if<InputError>(!is_number_type(*type), source.path + ": column '" +
                                                   source.names[static_cast<std::size_t>(index)] + "' is " +
                                                   type->ToString() + ", not a number");
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(column->length()));
  const auto fail_missing = [&](std::int64_t row) {
    const std::string text = locator.text(row, index);
    locator.fail(row, index, name, text.empty() ? "no value" : "'" + text + "' is no value");
  };
  for (const auto& chunk : column->chunks()) {
    const auto offset = static_cast<std::int64_t>(values.size());
    if (chunk->null_count() > 0) {
      for (std::int64_t k = 0; k < chunk->length(); ++k) {
        if (chunk->IsNull(k)) fail_missing(offset + k + 1);
      }
    }
    switch (type->id()) {
      case arrow::Type::DOUBLE:
        append_values<arrow::DoubleArray>(*chunk, values);
        break;
      case arrow::Type::FLOAT:
        append_values<arrow::FloatArray>(*chunk, values);
        break;
      case arrow::Type::INT8:
        append_values<arrow::Int8Array>(*chunk, values);
        break;
      case arrow::Type::INT16:
        append_values<arrow::Int16Array>(*chunk, values);
        break;
      case arrow::Type::INT32:
        append_values<arrow::Int32Array>(*chunk, values);
        break;
      case arrow::Type::INT64:
        append_values<arrow::Int64Array>(*chunk, values);
        break;
      case arrow::Type::UINT8:
        append_values<arrow::UInt8Array>(*chunk, values);
        break;
      case arrow::Type::UINT16:
        append_values<arrow::UInt16Array>(*chunk, values);
        break;
      case arrow::Type::UINT32:
        append_values<arrow::UInt32Array>(*chunk, values);
        break;
      case arrow::Type::UINT64:
        append_values<arrow::UInt64Array>(*chunk, values);
        break;
      default: {
        const auto& decimals = static_cast<const arrow::Decimal128Array&>(*chunk);
        const std::int32_t scale = static_cast<const arrow::Decimal128Type&>(*type).scale();
        for (std::int64_t k = 0; k < chunk->length(); ++k) {
          values.push_back(arrow::Decimal128(decimals.GetValue(k)).ToDouble(scale));
        }
      }
    }
    // x - x is 0 for finite x only: a sum without branches, while the chunk is in the cache.
    double zero = 0;
    for (std::size_t k = static_cast<std::size_t>(offset); k < values.size(); ++k) zero += values[k] - values[k];
    if (zero == 0) continue;
    for (std::size_t k = static_cast<std::size_t>(offset); k < values.size(); ++k) {
      const auto row = static_cast<std::int64_t>(k) + 1;
      if (std::isnan(values[k])) fail_missing(row);
      if (std::isinf(values[k])) locator.fail(row, index, name, "the value is infinite");
    }
  }
  return values;
}

/// Calls `each(k, text)` for every entry of a text column; a missing one is empty.
template <class Each>
void for_each_text(const Source& source, int index, const Each& each) {
  const auto column_is = [&](const std::string& what) {
    return source.path + ": column '" + source.names[static_cast<std::size_t>(index)] + "' is " + what;
  };
  std::size_t at = 0;
  for (const auto& chunk : source.columns[static_cast<std::size_t>(index)]->chunks()) {
    const auto pass = [&](const auto& array) {
      for (std::int64_t k = 0; k < array.length(); ++k)
        each(at++, array.IsNull(k) ? std::string_view() : array.GetView(k));
    };
    switch (chunk->type_id()) {
      case arrow::Type::STRING:
        pass(static_cast<const arrow::StringArray&>(*chunk));
        break;
      case arrow::Type::LARGE_STRING:
        pass(static_cast<const arrow::LargeStringArray&>(*chunk));
        break;
      case arrow::Type::DICTIONARY: {
        const auto& coded = static_cast<const arrow::DictionaryArray&>(*chunk);
        throw_if<InputError>(coded.dictionary()->type_id() != arrow::Type::STRING, column_is("not text"));
        const auto& words = static_cast<const arrow::StringArray&>(*coded.dictionary());
        for (std::int64_t k = 0; k < coded.length(); ++k) {
          each(at++, coded.IsNull(k) ? std::string_view() : words.GetView(coded.GetValueIndex(k)));
        }
        break;
      }
      default:
        throw InputError(column_is(chunk->type()->ToString() + ", not text"));
    }
  }
}

std::vector<std::string> strings_of(const Source& source, int index) {
  std::vector<std::string> values;
  values.reserve(static_cast<std::size_t>(source.columns[static_cast<std::size_t>(index)]->length()));
  for_each_text(source, index, [&](std::size_t, std::string_view text) { values.emplace_back(text); });
  return values;
}

/// Nanoseconds of one unit of an epoch of this size. Boundaries: the year 5138 in the smaller unit, 1973 in the larger.
std::int64_t epoch_unit(double magnitude) {
  return magnitude < 1e11 ? ns_per_second : magnitude < 1e14 ? 1'000'000 : magnitude < 1e17 ? 1'000 : 1;
}

/// Epochs to nanoseconds in place; `values` holds the numbers of the file.
template <class Number>
std::vector<std::int64_t> times_from_epochs(const std::vector<Number>& values, const Locator& locator, int index) {
  double largest = 0;
  for (const Number v : values) largest = std::max(largest, std::abs(static_cast<double>(v)));
  const std::int64_t unit = epoch_unit(largest);
  const double limit = 9.2e18 / static_cast<double>(unit);
  std::vector<std::int64_t> times(values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto v = static_cast<double>(values[k]);
    const auto row = static_cast<std::int64_t>(k) + 1;
    if (!(std::abs(v) < limit)) locator.fail(row, index, "time", "the time lies outside 1678 ... 2261");
    // One file that changes its unit (s, ms, us) half-way would else pass as one with a very long gap.
    if (k > 0 && static_cast<double>(values[k - 1]) > 1e8 &&
        (v >= 500 * static_cast<double>(values[k - 1]) || (v > 1e8 && static_cast<double>(values[k - 1]) >= 500 * v))) {
      locator.fail(row, index, "time", "the epoch changes its unit here (s, ms, us or ns)");
    }
    if constexpr (std::is_integral_v<Number>) {
      times[k] = values[k] * unit;
    } else {
      times[k] = std::llround(v * static_cast<double>(unit));
    }
  }
  return times;
}

std::vector<std::int64_t> times_of(const Source& source, const ImportOptions& options) {
  const int index = source.roles.time;
  const Chunks& column = source.columns[static_cast<std::size_t>(index)];
  const Locator locator(source.path, source.csv);
  const auto offset_option = parse_offset(options.timezone);
  throw_if<InputError>(!offset_option,
                       "time zone '" + options.timezone + "' is neither UTC nor an offset such as +02:00");
  const std::int64_t offset_ns = *offset_option;

  std::int64_t row = 0;
  for (const auto& chunk : column->chunks()) {
    for (std::int64_t k = 0; chunk->null_count() > 0 && k < chunk->length(); ++k) {
      if (chunk->IsNull(k)) locator.fail(row + k + 1, index, "time", "no time");
    }
    row += chunk->length();
  }

  std::vector<std::int64_t> times(static_cast<std::size_t>(column->length()));
  std::size_t at = 0;
  switch (column->type()->id()) {
    case arrow::Type::INT64:
    case arrow::Type::INT32:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64: {
      for (const auto& chunk : column->chunks()) {
        for (std::int64_t k = 0; k < chunk->length(); ++k, ++at) {
          switch (chunk->type_id()) {
            case arrow::Type::INT64:
              times[at] = static_cast<const arrow::Int64Array&>(*chunk).Value(k);
              break;
            case arrow::Type::INT32:
              times[at] = static_cast<const arrow::Int32Array&>(*chunk).Value(k);
              break;
            case arrow::Type::UINT32:
              times[at] = static_cast<const arrow::UInt32Array&>(*chunk).Value(k);
              break;
            default:
              times[at] = static_cast<std::int64_t>(static_cast<const arrow::UInt64Array&>(*chunk).Value(k));
          }
        }
      }
      return times_from_epochs(times, locator, index);
    }
    case arrow::Type::DOUBLE:
      return times_from_epochs(numbers_of(source, index, "time"), locator, index);
    case arrow::Type::TIMESTAMP: {
      const auto& type = static_cast<const arrow::TimestampType&>(*column->type());
      constexpr std::int64_t units[] = {ns_per_second, 1'000'000, 1'000, 1};
      const std::int64_t unit = units[static_cast<int>(type.unit())];
      // With a zone the values are UTC, without one they are the local time of the file.
      const std::int64_t shift = type.timezone().empty() ? offset_ns : 0;
      const std::int64_t limit = std::numeric_limits<std::int64_t>::max() / unit - 86400;
      for (const auto& chunk : column->chunks()) {
        const auto& array = static_cast<const arrow::TimestampArray&>(*chunk);
        for (std::int64_t k = 0; k < array.length(); ++k, ++at) {
          const std::int64_t v = array.Value(k);
          if (v > limit || v < -limit) {
            locator.fail(static_cast<std::int64_t>(at) + 1, index, "time", "the time lies outside 1678 ... 2261");
          }
          times[at] = v * unit - shift;
        }
      }
      return times;
    }
    case arrow::Type::DATE32:
      for (const auto& chunk : column->chunks()) {
        const auto& array = static_cast<const arrow::Date32Array&>(*chunk);
        for (std::int64_t k = 0; k < array.length(); ++k, ++at) {
          if (std::abs(array.Value(k)) > 106000) {
            locator.fail(static_cast<std::int64_t>(at) + 1, index, "time", "the time lies outside 1678 ... 2261");
          }
          times[at] = array.Value(k) * 86400 * ns_per_second - offset_ns;
        }
      }
      return times;
    default:
      break;
  }

  const std::vector<std::string> clocks =
      source.roles.clock >= 0 ? strings_of(source, source.roles.clock) : std::vector<std::string>{};
  std::string both;
  for_each_text(source, index, [&](std::size_t k, std::string_view text) {
    if (!clocks.empty()) {
      both.assign(text).append(" ").append(clocks[k]);
      text = both;
    }
    const auto time = parse_time(text, offset_ns);
    if (!time) {
      const bool header = !text.empty() && plain_name(locator.text(static_cast<std::int64_t>(k) + 1, index)) ==
                                               plain_name(source.names[static_cast<std::size_t>(index)]);
      locator.fail(static_cast<std::int64_t>(k) + 1, index, "time",
                   "'" + std::string(text) + "' is no time" +
                       (header ? " (a second header line?)"
                               : ": write 2024-01-31T09:30:00Z, 2024-01-31 or an epoch in s, ms, us or ns"));
    }
    times[k] = *time;
  });
  return times;
}

/// Runs independent tasks on as many threads as there are cores; throws what the first task of the list threw.
void run_side_by_side(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::exception_ptr> errors(tasks.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t k; (k = next++) < tasks.size();) {
      try {
        tasks[k]();
      } catch (...) {
        errors[k] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t threads = std::min<std::size_t>(tasks.size(), std::max(1u, std::thread::hardware_concurrency()));
  for (std::size_t k = 1; k < threads; ++k) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

template <class T>
void take(std::vector<T>& values, const std::vector<std::size_t>& order) {
  std::vector<T> taken;
  taken.reserve(order.size());
  for (const std::size_t k : order) taken.push_back(std::move(values[k]));
  values = std::move(taken);
}

void take_all(Table& table, const std::vector<std::size_t>& order) {
  take(table.time_ns, order);
  take(table.row, order);
  if (!table.symbol.empty()) take(table.symbol, order);
  for (Table::Column& column : table.columns) take(column.values, order);
}

/// Brings the entries of each symbol together, symbols in the order of their first row.
void group_by_symbol(Table& table) {
  if (table.symbol.empty()) return;
  std::unordered_map<std::string, std::size_t> ids;
  std::vector<std::size_t> id(table.size()), counts;
  bool grouped = true;
  for (std::size_t k = 0; k < table.size(); ++k) {
    const auto [at, fresh] = ids.try_emplace(table.symbol[k], ids.size());
    if (fresh) counts.push_back(0);
    id[k] = at->second;
    ++counts[id[k]];
    grouped = grouped && (k == 0 || id[k] >= id[k - 1]);
  }
  if (grouped) return;
  std::vector<std::size_t> next(counts.size(), 0);
  std::partial_sum(counts.begin(), counts.end() - 1, next.begin() + 1);
  std::vector<std::size_t> order(table.size());
  for (std::size_t k = 0; k < table.size(); ++k) order[next[id[k]]++] = k;
  take_all(table, order);
}

/// Times must rise within a symbol; bars with the same time are dealt with as the options say.
void check_order(Table& table, const ImportOptions& options, const Locator& locator, int index) {
  std::vector<std::size_t> keep;
  bool repeated = false;
  for (std::size_t k = 0; k < table.size(); ++k) {
    const bool same_symbol = k > 0 && (table.symbol.empty() || table.symbol[k] == table.symbol[k - 1]);
    if (!same_symbol || table.time_ns[k] > table.time_ns[k - 1]) {
      if (repeated) keep.push_back(k);
      continue;
    }
    const std::string time = format_time(table.time_ns[k]);
    if (table.time_ns[k] < table.time_ns[k - 1]) {
      locator.fail(table.row[k], index, "time",
                   time + " is before " + format_time(table.time_ns[k - 1]) + " of row " +
                       std::to_string(table.row[k - 1]) + ": sort the file by time");
    }
    if (options.duplicates == "error") {
      locator.fail(table.row[k], index, "time",
                   time + " stands in row " + std::to_string(table.row[k - 1]) +
                       " too: mend the file, or set data.duplicates to first or last");
    }
    if (!repeated) {
      keep.resize(k);
      std::iota(keep.begin(), keep.end(), std::size_t{0});
      repeated = true;
    }
    if (options.duplicates == "last") keep.back() = k;
  }
  if (repeated) take_all(table, keep);
}

}  // namespace

Table read_bars_table(const std::string& path, const ImportOptions& options) {
  throw_if<InputError>(options.duplicates != "error" && options.duplicates != "first" && options.duplicates != "last",
                       "duplicates '" + options.duplicates + "' is none of error, first, last");
  Table table;
  table.source = path;
  Source source =
      is_parquet(path) ? read_parquet(path, options, table.warnings) : read_csv(path, options, table.warnings);
  const ColumnRoles& roles = source.roles;

  // Columns are copied side by side; their order, and which error is reported, is that of the list.
  std::vector<std::function<void()>> copies;
  copies.emplace_back([&] { table.time_ns = times_of(source, options); });
  if (roles.symbol >= 0) copies.emplace_back([&] { table.symbol = strings_of(source, roles.symbol); });
  std::vector<std::pair<int, std::string>> wanted;
  for (int f = 0; f < 5; ++f) wanted.emplace_back(roles.ohlcv[f], ohlcv_names[f]);
  for (const int index : roles.others) {
    const Chunks& column = source.columns[static_cast<std::size_t>(index)];
    if (column == nullptr) continue;
    const std::string& name = source.names[static_cast<std::size_t>(index)];
    if (is_number_type(*column->type())) {
      wanted.emplace_back(index, name);
    } else {
      table.warnings.push_back(path + ": column '" + name + "' is not numeric: ignored");
    }
  }
  table.columns.resize(wanted.size());
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    table.columns[k].name = wanted[k].second;
    if (wanted[k].first < 0) continue;
    copies.emplace_back([&, k] { table.columns[k].values = numbers_of(source, wanted[k].first, wanted[k].second); });
  }
  run_side_by_side(copies);
  source.columns.clear();
  if (roles.ohlcv[4] < 0) {
    table.has_volume = false;
    table.columns[4].values.assign(table.size(), 0.0);
    table.warnings.push_back(path + ": no column 'volume': taken as zero");
  }
  table.row.resize(table.size());
  std::iota(table.row.begin(), table.row.end(), std::int64_t{1});
  group_by_symbol(table);
  check_order(table, options, Locator(path, source.csv), roles.time);
  return table;
}

void write_parquet(const Table& table, const std::string& path) {
  const auto check = [&](const arrow::Status& status) {
    if (!status.ok())
      throw RunError("cannot write " + path + ": " + status.message().substr(0, status.message().find('\n')));
  };
  const auto rows = static_cast<std::int64_t>(table.size());
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  const auto time_type = arrow::timestamp(arrow::TimeUnit::NANO, "UTC");
  fields.push_back(arrow::field("time", time_type, false));
  arrays.push_back(std::make_shared<arrow::TimestampArray>(time_type, rows, arrow::Buffer::Wrap(table.time_ns)));
  if (!table.symbol.empty()) {
    arrow::StringBuilder builder;
    check(builder.AppendValues(table.symbol));
    std::shared_ptr<arrow::Array> symbols;
    check(builder.Finish(&symbols));
    fields.push_back(arrow::field("symbol", arrow::utf8(), false));
    arrays.push_back(symbols);
  }
  for (const Table::Column& column : table.columns) {
    fields.push_back(arrow::field(column.name, arrow::float64(), false));
    arrays.push_back(std::make_shared<arrow::DoubleArray>(rows, arrow::Buffer::Wrap(column.values)));
  }
  const auto out = arrow::Table::Make(arrow::schema(fields), arrays, rows);

  parquet::WriterProperties::Builder properties;
  if (arrow::util::Codec::IsAvailable(arrow::Compression::ZSTD)) properties.compression(arrow::Compression::ZSTD);
  const std::string temporary = path + ".tmp";
  try {
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) fail_with_errno("cannot write " + path);
    auto opened = arrow::io::FileOutputStream::Open(descriptor);  // takes the descriptor over
    check(opened.status());
    check(parquet::arrow::WriteTable(*out, arrow::default_memory_pool(), *opened, std::int64_t{1} << 20,
                                     properties.build()));
    if (::fsync(descriptor) != 0) fail_with_errno("cannot write " + path);
    check((*opened)->Close());
    put_in_place(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace vulpes::io
