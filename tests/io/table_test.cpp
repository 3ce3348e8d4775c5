#include "vulpes/io/table.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "temporary_folder.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/io/time_text.hpp"

namespace vulpes::io {
namespace {

const std::string header = "time,open,high,low,close,volume\n";

class BarsFile : public TemporaryFolder {
 protected:
  Table table_of(const std::string& text, const ImportOptions& options = {}) {
    return read_bars_table(write("bars.csv", text), options);
  }
  std::string problem(const std::string& text, const ImportOptions& options = {}) {
    write("bars.csv", text);
    return error_of<InputError>([&] { read_bars_table(path("bars.csv"), options); });
  }
  static std::int64_t time(const std::string& text) { return parse_time(text).value(); }
  static std::vector<std::string> names(const Table& table) {
    std::vector<std::string> result;
    for (const Table::Column& column : table.columns) result.push_back(column.name);
    return result;
  }
  static void expect_equal(const Table& a, const Table& b) {
    EXPECT_EQ(a.time_ns, b.time_ns);
    EXPECT_EQ(names(a), names(b));
    EXPECT_EQ(a.symbol, b.symbol);
    for (std::size_t k = 0; k < std::min(a.columns.size(), b.columns.size()); ++k) {
      EXPECT_EQ(a.columns[k].values, b.columns[k].values) << a.columns[k].name;
    }
  }
};

const std::string three_bars = "2024-01-01,1,4,0.5,2,10\n2024-01-02,2,5,1.5,3,20\n2024-01-03,3,6,2.5,4,30\n";

TEST_F(BarsFile, ColumnsComeOutInOrderWhateverTheirSpelling) {
  const Table table =
      table_of("<VOL>;Close; LOW ;High;Date Time;OPEN\n10;2;0.5;4;2024-01-01;1\n20;3;1.5;5;2024-01-02;2\n");
  EXPECT_EQ(names(table), (std::vector<std::string>{"open", "high", "low", "close", "volume"}));
  EXPECT_EQ(table.time_ns, (std::vector<std::int64_t>{time("2024-01-01"), time("2024-01-02")}));
  EXPECT_EQ(table.find("open")->values, (std::vector<double>{1, 2}));
  EXPECT_EQ(table.find("high")->values, (std::vector<double>{4, 5}));
  EXPECT_EQ(table.find("low")->values, (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(table.find("close")->values, (std::vector<double>{2, 3}));
  EXPECT_EQ(table.find("volume")->values, (std::vector<double>{10, 20}));
  EXPECT_EQ(table.find("none"), nullptr);
  EXPECT_EQ(table.row, (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(table.symbol.empty());
  EXPECT_TRUE(table.warnings.empty());
}

TEST_F(BarsFile, AnUnnamedFirstColumnIsTheTime) {
  const Table table = table_of(",Open,High,Low,Close,Volume\n2004-08-19,100,104.06,95.96,100.34,22351900\n");
  EXPECT_EQ(table.time_ns, (std::vector<std::int64_t>{time("2004-08-19")}));
  EXPECT_EQ(table.find("close")->values, (std::vector<double>{100.34}));
}

TEST_F(BarsFile, DateAndTimeInTwoColumns) {
  const Table table =
      table_of("Date,Time,Open,High,Low,Close\n2024.01.31,09:30,1,1,1,1\n2024.01.31,09:31:30,1,1,1,1\n");
  EXPECT_EQ(table.time_ns, (std::vector<std::int64_t>{time("2024-01-31T09:30Z"), time("2024-01-31T09:31:30Z")}));
  EXPECT_FALSE(table.has_volume);
  EXPECT_EQ(table.find("volume")->values, (std::vector<double>{0, 0}));
  ASSERT_EQ(table.warnings.size(), 1u);
  EXPECT_EQ(shortened(table.warnings[0]), "bars.csv: no column 'volume': taken as zero");
}

TEST_F(BarsFile, EpochsAreToldApartByMagnitude) {
  const std::int64_t seconds = 1704067200;
  ::setenv("TZ", "America/New_York", 1);
  ::tzset();
  for (const char* digits : {"", "000", "000000", "000000000"}) {
    const auto stamp = [&](std::int64_t s) { return std::to_string(s) + digits; };
    const Table table = table_of(header + stamp(seconds) + ",1,1,1,1,0\n" + stamp(seconds + 60) + ",1,1,1,1,0\n");
    EXPECT_EQ(table.time_ns, (std::vector<std::int64_t>{time("2024-01-01T00:00Z"), time("2024-01-01T00:01Z")}))
        << digits;
  }
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(table_of(header + "0,1,1,1,1,0\n60,1,1,1,1,0\n600,1,1,1,1,0\n").time_ns,
            (std::vector<std::int64_t>{0, 60 * ns_per_second, 600 * ns_per_second}));
  EXPECT_EQ(table_of(header + "1704067200.5,1,1,1,1,0\n").time_ns,
            (std::vector<std::int64_t>{seconds * ns_per_second + ns_per_second / 2}));
  EXPECT_EQ(table_of(header + "20240101,1,1,1,1,0\n20240102,1,1,1,1,0\n").time_ns,
            (std::vector<std::int64_t>{time("2024-01-01"), time("2024-01-02")}));
  EXPECT_EQ(problem(header + "1735603200000,1,1,1,1,0\n1735689600000000,1,1,1,1,0\n"),
            "bars.csv:3:1: row 2, column 'time': the epoch changes its unit here (s, ms, us or ns)");
}

TEST_F(BarsFile, OffsetsAndTimeZones) {
  const std::string text = header + "2024-01-01T00:00:00+02:00,1,1,1,1,0\n2024-01-01 00:00:00,1,1,1,1,0\n";
  EXPECT_EQ(table_of(text).time_ns, (std::vector<std::int64_t>{time("2023-12-31T22:00Z"), time("2024-01-01T00:00Z")}));
  ImportOptions options;
  options.timezone = "+01:00";
  EXPECT_EQ(table_of(text, options).time_ns,
            (std::vector<std::int64_t>{time("2023-12-31T22:00Z"), time("2023-12-31T23:00Z")}));
  options.timezone = "Mars";
  EXPECT_EQ(problem(text, options), "time zone 'Mars' is neither UTC nor an offset such as +02:00");
}

TEST_F(BarsFile, ExtraColumnsStayIfTheyAreNumeric) {
  const Table table = table_of(
      "time,open,high,low,close,volume,Funding Rate,venue,index,close_time,note\n"
      "1,1,1,1,1,5,0.25,X,3,1.9,\n2,1,1,1,1,6,1e-3,Y,4,2.9,\n");
  EXPECT_EQ(names(table),
            (std::vector<std::string>{"open", "high", "low", "close", "volume", "Funding Rate", "index"}));
  EXPECT_EQ(table.find("Funding Rate")->values, (std::vector<double>{0.25, 0.001}));
  EXPECT_EQ(table.find("index")->values, (std::vector<double>{3, 4}));
  ASSERT_EQ(table.warnings.size(), 3u);
  EXPECT_EQ(shortened(table.warnings[0]), "bars.csv: column 'venue' is not numeric: ignored");
  EXPECT_EQ(shortened(table.warnings[1]), "bars.csv: column 'close_time' is a second time or a row number: ignored");
  EXPECT_EQ(shortened(table.warnings[2]), "bars.csv: column 'note' is not numeric: ignored");
}

TEST_F(BarsFile, ClosesWithNaNAreAnErrorNamingRow2AndClose) {
  EXPECT_EQ(problem(header + "1,1,1,1,100,0\n2,1,1,1,NaN,0\n3,1,1,1,101,0\n"),
            "bars.csv:3:9: row 2, column 'close': 'NaN' is no value");
  EXPECT_EQ(problem(header + "1,1,1,1,100,0\n2,1,1,1,,0\n3,1,1,1,101,0\n"),
            "bars.csv:3:9: row 2, column 'close': no value");
  EXPECT_EQ(problem("time,open,high,low,close,x\n1,1,1,1,1,1\n2,1,1,1,1,nan\n"),
            "bars.csv:3:11: row 2, column 'x': 'nan' is no value");
  EXPECT_EQ(problem(header + "1,1,inf,1,100,0\n"), "bars.csv:2:5: row 1, column 'high': the value is infinite");
}

TEST_F(BarsFile, UnorderedTimesAreAnErrorNamingTheRow) {
  EXPECT_EQ(problem(header + "2024-01-03,1,1,1,1,0\n2024-01-01,1,1,1,1,0\n2024-01-04,1,1,1,1,0\n"),
            "bars.csv:3:1: row 2, column 'time': 2024-01-01T00:00:00Z is before 2024-01-03T00:00:00Z of row 1: sort "
            "the file by "
            "time");
}

TEST_F(BarsFile, DuplicateTimesNeedAPolicy) {
  const std::string text = header + "1,1,1,1,1,0\n2,1,1,1,2,0\n2,1,1,1,3,0\n2,1,1,1,4,0\n3,1,1,1,5,0\n";
  EXPECT_EQ(problem(text),
            "bars.csv:4:1: row 3, column 'time': 1970-01-01T00:00:02Z stands in row 2 too: mend the file, or set "
            "data.duplicates "
            "to first or last");
  ImportOptions options;
  options.duplicates = "first";
  Table table = table_of(text, options);
  EXPECT_EQ(table.find("close")->values, (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(table.row, (std::vector<std::int64_t>{1, 2, 5}));
  options.duplicates = "last";
  table = table_of(text, options);
  EXPECT_EQ(table.find("close")->values, (std::vector<double>{1, 4, 5}));
  EXPECT_EQ(table.row, (std::vector<std::int64_t>{1, 4, 5}));
  EXPECT_EQ(table.time_ns, (std::vector<std::int64_t>{ns_per_second, 2 * ns_per_second, 3 * ns_per_second}));
  EXPECT_EQ(shortened(table.where(1, "close")), "bars.csv:5:9: row 4, column 'close'");
  options.duplicates = "any";
  EXPECT_EQ(problem(text, options), "duplicates 'any' is none of error, first, last");
}

TEST_F(BarsFile, LineEndsAndByteOrderMarkDoNotMatter) {
  const Table plain = table_of(header + three_bars);
  std::string crlf;
  for (const char c : header + three_bars) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  expect_equal(table_of(crlf), plain);
  expect_equal(table_of("\xef\xbb\xbf" + header + three_bars), plain);
  expect_equal(table_of("\xef\xbb\xbf" + crlf), plain);
  std::string open_end = header + three_bars;
  open_end.pop_back();
  expect_equal(table_of(open_end), plain);
  expect_equal(table_of("\n" + header + "\n" + three_bars + "\n\n"), plain);
  EXPECT_EQ(plain.size(), 3u);
}

TEST_F(BarsFile, FilesThatAreNoTableOfBars) {
  EXPECT_EQ(problem(""), "bars.csv:1:1: the file is empty");
  EXPECT_EQ(problem("\n\n"), "bars.csv:1:1: the file is empty");
  EXPECT_EQ(problem(header), "bars.csv:2:1: no bars after the header");
  EXPECT_EQ(problem("time,open,high,low,close"), "bars.csv:2:1: no bars after the header");
  EXPECT_EQ(problem("time,open,high,low,volume\n1,1,1,1,1\n"),
            "bars.csv:1:1: no column 'close' (found 'time', 'open', 'high', 'low', 'volume'; needed: time, open, high, "
            "low, close)");
  EXPECT_EQ(problem("x,open,high,low,close\n1,1,1,1,1\n"),
            "bars.csv:1:1: no time column (found 'x', 'open', 'high', 'low', 'close'; looked for time, timestamp, "
            "date, datetime "
            "and an unnamed first one)");
  EXPECT_EQ(problem("1704067200000,1,1,1,1,5\n1704067260000,1,1,1,1,5\n"),
            "bars.csv:1:1: the first line has no column names");
  EXPECT_EQ(problem("time,open,high,low,close,Close\n1,1,1,1,1,1\n"), "bars.csv:1:1: two columns 'close' and 'Close'");
  std::string utf16 = "\xff\xfe";
  for (const char c : header + three_bars) utf16 += std::string(1, c) + '\0';
  EXPECT_EQ(problem(utf16), "bars.csv:1:1: UTF-16 text: save the file as UTF-8");
  EXPECT_EQ(problem(utf16.substr(2)), "bars.csv:1:1: UTF-16 text or no text at all: save the file as UTF-8");
  EXPECT_EQ(problem(header + std::string("1,1,\0", 5)), "bars.csv:1:1: neither text (CSV) nor a Parquet file");
  EXPECT_EQ(error_of<InputError>([&] { read_bars_table(path("none.csv")); }),
            "cannot read none.csv: No such file or directory");
  EXPECT_EQ(error_of<InputError>([&] { read_bars_table(folder()); }), "cannot read " + folder() + ": it is a folder");
}

TEST_F(BarsFile, ASecondHeaderAtLine50IsNamed) {
  std::string epochs = header, dates = header;
  for (int line = 2; line < 60; ++line) {
    epochs += line == 50 ? header : std::to_string(line * 60) + ",1,1,1,1,0\n";
    dates += line == 50 ? header : format_time(line * 60 * ns_per_second) + ",1,1,1,1,0\n";
  }
  EXPECT_EQ(
      problem(epochs),
      "bars.csv:50:1: row 49, column 'time': 'time' is no epoch number as in the rows before (a second header line?)");
  EXPECT_EQ(problem(dates), "bars.csv:50:6: row 49, column 'open': 'open' is not a number (a second header line?)");
}

TEST_F(BarsFile, TextInANumberColumnIsNamed) {
  EXPECT_EQ(problem(header + "1,1,1,1,1,0\n\n2,1,1,1,1.5x,0\n"),
            "bars.csv:4:9: row 2, column 'close': '1.5x' is not a number");
  EXPECT_EQ(problem("time,open,high,low,close,x\n1,1,1,1,1,1\n2,1,1,1,1,?\n"),
            "bars.csv:3:11: row 2, column 'x': '?' is not a number");
  EXPECT_EQ(problem(header + "1,1,1,1,1,0\n2,1,1,1,0\n"), "bars.csv:3:9: row 2: 5 values for 6 columns");
  EXPECT_EQ(problem(header + "01/31/2024,1,1,1,1,0\n"),
            "bars.csv:2:1: row 1, column 'time': '01/31/2024' is no time: write 2024-01-31T09:30:00Z, 2024-01-31 or an "
            "epoch in "
            "s, ms, us or ns");
  EXPECT_EQ(problem(header + "2024-01-01,1,1,1,1,0\n,1,1,1,1,0\n").substr(0, 41),
            "bars.csv:3:1: row 2, column 'time': '' is");
}

TEST_F(BarsFile, SymbolsAreBroughtTogether) {
  const Table table =
      table_of("time,symbol,open,high,low,close\n1,B,1,1,1,1\n1,A,1,1,1,2\n2,B,1,1,1,3\n2,A,1,1,1,4\n3,A,1,1,1,5\n");
  EXPECT_EQ(table.symbol, (std::vector<std::string>{"B", "B", "A", "A", "A"}));
  EXPECT_EQ(table.find("close")->values, (std::vector<double>{1, 3, 2, 4, 5}));
  EXPECT_EQ(table.row, (std::vector<std::int64_t>{1, 3, 2, 4, 5}));
  EXPECT_EQ(problem("time,symbol,open,high,low,close\n2,B,1,1,1,1\n1,A,1,1,1,2\n1,B,1,1,1,3\n"),
            "bars.csv:4:1: row 3, column 'time': 1970-01-01T00:00:01Z is before 1970-01-01T00:00:02Z of row 1: sort "
            "the file by "
            "time");
}

TEST_F(BarsFile, NamedColumns) {
  ImportOptions options;
  options.time_column = "bar_end";
  options.symbol_column = "asset";
  const Table table = table_of("time,bar_end,asset,open,high,low,close\n9,1,X,1,1,1,1\n8,2,X,1,1,1,1\n", options);
  EXPECT_EQ(table.time_ns, (std::vector<std::int64_t>{ns_per_second, 2 * ns_per_second}));
  EXPECT_EQ(table.symbol, (std::vector<std::string>{"X", "X"}));
  options.time_column = "t";
  EXPECT_EQ(problem(header + three_bars, options),
            "bars.csv:1:1: no column 't' (found 'time', 'open', 'high', 'low', 'close', 'volume')");
}

TEST_F(BarsFile, ParquetHoldsTheEqualTable) {
  const Table table = table_of(
      "time,symbol,open,high,low,close,volume,x\n1704067200000000001,A,1,4,0.1,2,10,0.3\n"
      "1704067260000000000,A,1.1,4,0.1,2,11,-0.3\n1704067200000000000,B,1,4,0.1,2,12,1e-300\n");
  write_parquet(table, path("bars.parquet"));
  const Table back = read_bars_table(path("bars.parquet"));
  expect_equal(back, table);
  EXPECT_EQ(back.row, table.row);
  EXPECT_TRUE(back.warnings.empty());
  EXPECT_EQ(shortened(back.where(1, "close")), "bars.parquet: row 2, column 'close'");
  EXPECT_FALSE(std::filesystem::exists(path("bars.parquet.tmp")));
  EXPECT_EQ(error_of<RunError>([&] { write_parquet(table, path("none/bars.parquet")); }),
            "cannot write none/bars.parquet: No such file or directory");
}

TEST_F(BarsFile, ParquetErrorsNameTheRowAndDamageIsAnError) {
  Table table = table_of(header + three_bars);
  table.columns[3].values[1] = std::nan("");
  write_parquet(table, path("bars.parquet"));
  EXPECT_EQ(error_of<InputError>([&] { read_bars_table(path("bars.parquet")); }),
            "bars.parquet: row 2, column 'close': no value");
  std::swap(table.time_ns[0], table.time_ns[2]);
  table.columns[3].values[1] = 1;
  write_parquet(table, path("bars.parquet"));
  EXPECT_EQ(error_of<InputError>([&] { read_bars_table(path("bars.parquet")); }).substr(0, 36),
            "bars.parquet: row 2, column 'time': ");
  const std::string whole = read(path("bars.parquet"));
  for (const std::size_t length : {std::size_t{4}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write("bars.parquet", whole.substr(0, length));
    EXPECT_EQ(error_of<InputError>([&] { read_bars_table(path("bars.parquet")); }).substr(0, 14), "bars.parquet: ")
        << length;
  }
}

/// Files of several Arrow blocks: order and row numbers must hold across them.
TEST_F(BarsFile, MillionRows) {
  std::string text = header;
  constexpr std::int64_t rows = 1'000'000;
  text.reserve(rows * 60);
  char line[128];
  for (std::int64_t k = 0; k < rows; ++k) {
    const int length = std::snprintf(
        line, sizeof line, "%lld,%.4f,%.4f,%.4f,%.4f,%lld\n", static_cast<long long>(1700000000 + 60 * k),
        100 + 0.0001 * static_cast<double>(k % 9973), 101.0, 99.5, 100.25, static_cast<long long>(k % 1000));
    text.append(line, static_cast<std::size_t>(length));
  }
  const auto begin = std::chrono::steady_clock::now();
  write("bars.csv", text);
  const auto written = std::chrono::steady_clock::now();
  const Table table = read_bars_table(path("bars.csv"));
  const auto end = std::chrono::steady_clock::now();
  std::printf("1 M rows, %.0f MB: %.3f s (writing the file: %.3f s)\n", static_cast<double>(text.size()) / 1e6,
              std::chrono::duration<double>(end - written).count(),
              std::chrono::duration<double>(written - begin).count());
  ASSERT_EQ(table.size(), static_cast<std::size_t>(rows));
  EXPECT_EQ(table.time_ns.back(), (1700000000 + 60 * (rows - 1)) * ns_per_second);
  for (const std::size_t k : {std::size_t{0}, std::size_t{345678}, std::size_t{999999}}) {
    EXPECT_DOUBLE_EQ(table.find("open")->values[k],
                     std::round((100 + 0.0001 * static_cast<double>(k % 9973)) * 1e4) / 1e4);
    EXPECT_EQ(table.find("volume")->values[k], static_cast<double>(k % 1000));
  }
  text.replace(text.find("\n1748000000,") + 12, 3, "xyz");
  EXPECT_EQ(problem(text), "bars.csv:800002:12: row 800001, column 'open': 'xyz" +
                               text.substr(text.find("xyz") + 3, 5) + "' is not a number");
}

}  // namespace
}  // namespace vulpes::io
