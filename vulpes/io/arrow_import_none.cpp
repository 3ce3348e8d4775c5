// In the place of arrow_import.cpp when Vulpes is built with VULPES_ENABLE_ARROW=OFF.
#include "vulpes/core/errors.hpp"
#include "vulpes/io/table.hpp"

namespace vulpes::io {

Table read_bars_table(const std::string& path, const ImportOptions&) {
  throw InputError("cannot read " + path +
                   ": this build has no CSV and Parquet import; build with VULPES_ENABLE_ARROW=ON");
}

void write_parquet(const Table&, const std::string& path) {
  throw InputError("cannot write " + path +
                   ": this build has no CSV and Parquet import; build with VULPES_ENABLE_ARROW=ON");
}

}  // namespace vulpes::io
