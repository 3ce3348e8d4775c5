#include "vulpes/market/import.hpp"

#include "vulpes/core/errors.hpp"

namespace vulpes::market {

Bars bars_from_table(const io::Table& table, std::int64_t bar_seconds, std::vector<std::string>& notes) {
  throw_if<InputError>(!table.symbol.empty() && table.symbol.front() != table.symbol.back(),
                       table.source + ": holds several symbols ('" +
                           (table.symbol.empty() ? "" : table.symbol.front()) + "', '" +
                           (table.symbol.empty() ? "" : table.symbol.back()) + "'); give a file with one");
  Bars bars;
  bars.time = table.time_ns;
  for (const io::Table::Column& column : table.columns) {
    if (column.name == "open")
      bars.open = column.values;
    else if (column.name == "high")
      bars.high = column.values;
    else if (column.name == "low")
      bars.low = column.values;
    else if (column.name == "close")
      bars.close = column.values;
    else if (column.name == "volume")
      bars.volume = column.values;
    else
      bars.extra.push_back({column.name, column.values});
  }
  bars.segment.assign(bars.size(), 0);
  check_bars(bars, [&](std::size_t entry, const std::string& column) { return table.where(entry, column); });
  const GapReport report = assign_segments(bars, bar_seconds);
  const auto count = [](std::int64_t n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  notes.push_back(count(static_cast<std::int64_t>(bars.size()), "bar") + " of " + std::to_string(report.bar_seconds) +
                  " s; " + count(report.gaps, "gap") + " (" + count(report.missing, "bar") + " missing), " +
                  count(report.closures, "closure") + " of the market");
  return bars;
}

}  // namespace vulpes::market
