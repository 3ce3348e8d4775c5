// From an imported table to bars that were checked and cut into segments.
#pragma once

#include <string>
#include <vector>

#include "vulpes/io/table.hpp"
#include "vulpes/market/bars.hpp"

namespace vulpes::market {

/// Bars of a table of one instrument; columns beyond OHLCV become extra features. Appends what a user should know (bar
/// length, gaps) to `notes`. `bar_seconds` 0: the most frequent distance. Throws InputError that names row and column.
Bars bars_from_table(const io::Table& table, std::int64_t bar_seconds, std::vector<std::string>& notes);

}  // namespace vulpes::market
