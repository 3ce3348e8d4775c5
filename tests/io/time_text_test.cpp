#include "vulpes/io/time_text.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace vulpes::io {
namespace {

constexpr std::int64_t new_year_2024 = 1704067200LL * ns_per_second;

TEST(TimeText, FormsOfTheSameInstant) {
  for (const char* text :
       {"2024-01-01", "2024-01-01T00:00Z", "2024-01-01 00:00:00", "2024-01-01T00:00:00.000", "20240101", "2024/01/01",
        "2024.01.01 00:00", "2024-01-01T02:00:00+02:00", "2023-12-31 19:00:00-0500", "2023-12-31 23:59:60-00",
        "20240101T000000Z", "2024-01-01 00:00:00 UTC", " 2024-1-1 "}) {
    if (std::string(text).find(":60") != std::string::npos) {
      EXPECT_FALSE(parse_time(text).has_value()) << "no leap seconds";
    } else {
      EXPECT_EQ(parse_time(text), new_year_2024) << text;
    }
  }
}

TEST(TimeText, IsTheSameInEveryTimeZone) {
  ::setenv("TZ", "Asia/Tokyo", 1);
  ::tzset();
  EXPECT_EQ(parse_time("2024-01-01 00:00:00"), new_year_2024);
  EXPECT_EQ(format_time(new_year_2024), "2024-01-01T00:00:00Z");
  ::unsetenv("TZ");
  ::tzset();
}

TEST(TimeText, FractionsOffsetsAndEarlyTimes) {
  EXPECT_EQ(parse_time("1970-01-01T00:00:00.000000001Z"), 1);
  EXPECT_EQ(parse_time("1969-12-31T23:59:59.5Z"), -ns_per_second / 2);
  EXPECT_EQ(parse_time("2000-02-29"), 951782400LL * ns_per_second);
  EXPECT_EQ(parse_time("2024-01-01", 3600 * ns_per_second), new_year_2024 - 3600 * ns_per_second);
  EXPECT_EQ(parse_time("2024-01-01T00:00Z", 3600 * ns_per_second), new_year_2024);
}

TEST(TimeText, WhatIsNoTime) {
  for (const char* text : {"",
                           "x",
                           "2024",
                           "2024-01",
                           "2024-13-01",
                           "2023-02-29",
                           "1900-02-29",
                           "2024-01-32",
                           "2024-01-01T",
                           "2024-01-01T24:00",
                           "2024-01-01T10",
                           "2024-01-01 10:61",
                           "2024-01-01Z",
                           "01/02/2024",
                           "2024-01/02",
                           "2024-01-01 10:00x",
                           "1677-01-01",
                           "2262-01-01",
                           "2024-01-01 10:00+2",
                           "2024-01-01 10:00:00."}) {
    EXPECT_FALSE(parse_time(text).has_value()) << text;
  }
}

TEST(TimeText, FormattedTimesReadBack) {
  EXPECT_EQ(format_time(1), "1970-01-01T00:00:00.000000001Z");
  EXPECT_EQ(format_time(-1), "1969-12-31T23:59:59.999999999Z");
  for (std::int64_t t = -9'000'000'000'000'000'000; t < 9'000'000'000'000'000'000; t += 77'777'777'777'777'777) {
    EXPECT_EQ(parse_time(format_time(t)), t) << format_time(t);
  }
}

TEST(TimeText, Offsets) {
  EXPECT_EQ(parse_offset("UTC"), 0);
  EXPECT_EQ(parse_offset("+05:30"), 19800 * ns_per_second);
  EXPECT_EQ(parse_offset("-08:00"), -28800 * ns_per_second);
  EXPECT_FALSE(parse_offset("Europe/Berlin").has_value());
  EXPECT_FALSE(parse_offset("+25:00").has_value());
}

}  // namespace
}  // namespace vulpes::io
