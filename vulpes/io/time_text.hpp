// Times as text: ISO 8601 and the variants that price files use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vulpes::io {

constexpr std::int64_t ns_per_second = 1'000'000'000;

/// Nanoseconds since 1970-01-01T00:00Z of `2024-01-31`, `2024-01-31 09:30`, `2024-01-31T09:30:00.5+02:00`, `...Z`,
/// also with `/` or `.` between the parts of the date, or none (`20240131T093000`). `offset_ns` (local minus UTC)
/// holds for text without an offset. Empty if the text is no such time or lies outside 1678 ... 2261.
std::optional<std::int64_t> parse_time(std::string_view text, std::int64_t offset_ns = 0);

/// `2024-01-31T09:30:00Z`, with as many decimals as needed.
std::string format_time(std::int64_t time_ns);

/// Offset of "UTC", "Z" or "+hh:mm" in nanoseconds; empty if the text is none of these.
std::optional<std::int64_t> parse_offset(std::string_view text);

}  // namespace vulpes::io
