// Arrow's CSV reader alone, as a yardstick for the import.
#pragma once

#include <cstdint>
#include <string>

namespace vulpes::bench {

/// Reads the file with Arrow's own inference of types; returns the number of rows.
std::int64_t read_with_arrow(const std::string& path);

}  // namespace vulpes::bench
