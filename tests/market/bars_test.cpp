#include "vulpes/market/bars.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "vulpes/core/errors.hpp"

namespace vulpes::market {
namespace {

constexpr std::int64_t second = 1'000'000'000, hour = 3600 * second, day = 24 * hour;
constexpr std::int64_t monday = 4 * day + 2600 * 7 * day;  // 1970-01-05 plus whole weeks: 2019-11-04

void add(Bars& b, std::int64_t time, std::int32_t segment = 0) {
  b.time.push_back(time);
  b.open.push_back(100);
  b.high.push_back(101);
  b.low.push_back(99);
  b.close.push_back(100);
  b.volume.push_back(1);
  b.segment.push_back(segment);
}
Bars at_seconds(std::initializer_list<std::int64_t> times) {
  Bars b;
  for (const std::int64_t t : times) add(b, t * second);
  return b;
}
std::int32_t segments(const Bars& b) { return b.segment.back() + 1; }

std::string error_of(const Bars& b) {
  try {
    check_bars(b, "bars.csv", {});
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}
void expect_error(const Bars& b, int row, const std::string& column) {
  const std::string text = error_of(b);
  EXPECT_NE(text.find("bars.csv: row " + std::to_string(row) + ", column '" + column + "'"), std::string::npos) << text;
}

TEST(CheckBars, NamesRowAndColumn) {
  const Bars good = at_seconds({0, 60, 120});
  EXPECT_EQ(error_of(good), "");
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const auto with = [&](std::vector<double> Bars::*column, double v) {
    Bars b = good;
    (b.*column)[1] = v;
    return b;
  };
  expect_error(with(&Bars::close, nan), 2, "close");
  expect_error(with(&Bars::open, 0.0), 2, "open");
  expect_error(with(&Bars::low, -1.0), 2, "low");
  expect_error(with(&Bars::high, inf), 2, "high");
  expect_error(with(&Bars::high, 98.0), 2, "high");     // high < low
  expect_error(with(&Bars::close, 102.0), 2, "close");  // outside low to high
  expect_error(with(&Bars::close, 98.5), 2, "close");
  expect_error(with(&Bars::open, 101.5), 2, "open");
  expect_error(with(&Bars::volume, -1.0), 2, "volume");
  expect_error(with(&Bars::volume, nan), 2, "volume");
  Bars extra = good;
  extra.extra.push_back({"funding", {0, 0, nan}});
  expect_error(extra, 3, "funding");
}

TEST(CheckBars, RefusesJumpsThatNoMarketMakes) {
  const auto scaled = [](double factor, std::size_t from, std::size_t to) {
    Bars b = at_seconds({0, 60, 120, 180});
    for (std::size_t i = from; i < to; ++i) {
      for (auto column : {&Bars::open, &Bars::high, &Bars::low, &Bars::close}) (b.*column)[i] *= factor;
    }
    return b;
  };
  EXPECT_EQ(error_of(scaled(99, 2, 4)), "");
  EXPECT_EQ(error_of(scaled(1 / 99.0, 2, 4)), "");
  expect_error(scaled(1e30, 2, 3), 3, "close");
  expect_error(scaled(101, 2, 4), 3, "close");
  expect_error(scaled(1 / 101.0, 1, 4), 2, "close");
  EXPECT_NE(error_of(scaled(1e30, 2, 3)).find("from 100 to 1e+32"), std::string::npos) << error_of(scaled(1e30, 2, 3));
  Bars series = scaled(1000, 2, 4);
  series.segment = {0, 0, 1, 1};  // another series may have another price
  EXPECT_EQ(error_of(series), "");
  Bars spike = at_seconds({0, 60});
  spike.high[1] = 1e30;
  expect_error(spike, 2, "high");
}

TEST(CheckBars, UsesTheFilesRowNumbers) {
  Bars b = at_seconds({0, 60, 120});
  b.volume[2] = -3;
  try {
    check_bars(b, "x.parquet", {5, 8, 13});
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("x.parquet: row 13, column 'volume'"), std::string::npos) << e.what();
  }
}

TEST(CheckBars, TimesIncreaseWithinASegment) {
  expect_error(at_seconds({3 * 86400, 86400, 4 * 86400}), 2, "time");
  expect_error(at_seconds({0, 60, 60}), 3, "time");
  Bars two = at_seconds({0, 60, 0, 60});
  two.segment = {0, 0, 1, 1};
  EXPECT_EQ(error_of(two), "");
}

TEST(Segments, OneGapSevenBarsMissing) {  // times 0, 60, 120, 600 s at 60 s bars
  for (const std::int64_t given : {0, 60}) {
    Bars b = at_seconds({0, 60, 120, 600});
    const GapReport r = assign_segments(b, given);
    EXPECT_EQ(r.bar_seconds, 60);
    EXPECT_EQ(r.gaps, 1);
    EXPECT_EQ(r.missing, 7);
    EXPECT_EQ(b.segment, (std::vector<std::int32_t>{0, 0, 0, 1}));
  }
}

TEST(Segments, SeriesAreNeverJoined) {
  Bars b = at_seconds({0, 60, 120, 180, 240, 300});
  b.segment = {4, 4, 4, 2, 2, 2};
  EXPECT_EQ(assign_segments(b).gaps, 0);
  EXPECT_EQ(b.segment, (std::vector<std::int32_t>{0, 0, 0, 1, 1, 1}));
  Bars one = at_seconds({0});
  EXPECT_EQ(assign_segments(one).bar_seconds, 0);
  EXPECT_EQ(one.segment.front(), 0);
}

/// Hourly FX from Sunday 22:00 (21:00 in summer) to Friday at the same hour.
Bars hourly_fx(int weeks) {
  Bars b;
  for (int w = 0; w < weeks; ++w) {
    const int shift = w % 52 >= 20 && w % 52 < 50 ? 1 : 0;
    const std::int64_t open = monday + w * 7 * day - (2 + shift) * hour;
    for (int h = 0; h < 120; ++h) {
      const std::int64_t t = open + h * hour;
      if (w == 7 && h >= 60 && h < 85) continue;  // Christmas: shut for 25 hours, but opened on the clock (10:00)
      add(b, t);
    }
  }
  return b;
}

TEST(Segments, AYearOfHourlyFxTrainsThroughItsWeekends) {
  Bars b = hourly_fx(52);
  const GapReport r = assign_segments(b);
  EXPECT_EQ(r.bar_seconds, 3600);
  EXPECT_EQ(r.closures, 51);
  EXPECT_EQ(r.gaps, 1);  // the one that begins and ends at no usual time
  EXPECT_EQ(r.missing, 25);
  EXPECT_EQ(segments(b), 2);
  EXPECT_DOUBLE_EQ(bars_a_year(b), 24 * 252);  // Sunday evenings do not make it a seven-day market
}

TEST(Segments, AnOutageWithinTheWeekCuts) {
  Bars full = hourly_fx(30), b;
  for (std::size_t i = 0; i < full.size(); ++i) {
    if (i >= 1234 && i < 1239) continue;
    add(b, full.time[i]);
  }
  const GapReport r = assign_segments(b);
  EXPECT_EQ(r.gaps, 2);
  EXPECT_EQ(r.missing, 30);  // 25 of the holiday and 5
}

TEST(Segments, DailyBarsTrainThroughWeekendsAndHolidays) {
  Bars b;
  for (int d = 0; d < 3 * 364; ++d) {
    if (d % 7 < 5 && d % 53 != 0) add(b, monday + d * day);
  }
  const GapReport r = assign_segments(b);
  EXPECT_EQ(r.bar_seconds, 86400);
  EXPECT_EQ(r.gaps, 0);
  EXPECT_GT(r.closures, 150);
  EXPECT_EQ(segments(b), 1);
  EXPECT_DOUBLE_EQ(bars_a_year(b), 252);
}

TEST(Segments, AMissingMonthCutsDailyBars) {
  Bars b;
  for (int d = 0; d < 364; ++d) {
    if (d % 7 < 5 && (d < 100 || d >= 130)) add(b, monday + d * day);
  }
  EXPECT_EQ(assign_segments(b).gaps, 1);
}

TEST(Segments, AMarketWithoutClosuresIsCutAtEachHole) {
  Bars b;  // hourly, round the clock, three holes at one time of day in a year
  for (int h = 0; h < 364 * 24; ++h) {
    if (h == 1000 || h == 1000 + 24 * 100 || h == 1000 + 24 * 200) continue;
    add(b, monday + h * hour);
  }
  const GapReport r = assign_segments(b);
  EXPECT_EQ(r.gaps, 3);
  EXPECT_EQ(r.closures, 0);
}

TEST(Segments, SessionsTrainThroughTheirNights) {
  Bars b;  // 15-minute bars of a 6.5 h session; opens at 14:30, in summer 13:30
  for (int d = 0; d < 364; ++d) {
    if (d % 7 >= 5) continue;
    const std::int64_t open = monday + d * day + (d > 130 && d < 330 ? 13 : 14) * hour + 1800 * second;
    const int bars = d == 24 ? 14 : 26;  // one early close
    for (int k = 0; k < bars; ++k) add(b, open + k * 900 * second);
  }
  const GapReport r = assign_segments(b);
  EXPECT_EQ(r.bar_seconds, 900);
  EXPECT_EQ(r.gaps, 0);
  EXPECT_EQ(segments(b), 1);
  EXPECT_DOUBLE_EQ(bars_a_year(b), 6552);
}

TEST(BarsAYear, FromTheTimestamps) {
  Bars week_days;  // 30-minute bars, 24 h, no weekends
  for (int d = 0; d < 28; ++d) {
    for (int k = 0; k < 48 && d % 7 < 5; ++k) add(week_days, monday + d * day + k * 1800 * second);
  }
  EXPECT_DOUBLE_EQ(bars_a_year(week_days), 12096);

  Bars always;
  for (int h = 0; h < 24 * 21; ++h) add(always, monday + h * hour);
  EXPECT_DOUBLE_EQ(bars_a_year(always), 24 * 365);

  Bars weekly;
  for (int w = 0; w < 60; ++w) add(weekly, monday + w * 7 * day);
  EXPECT_NEAR(bars_a_year(weekly), 52.18, 0.01);
  EXPECT_EQ(bars_a_year(Bars{}), 0);
}

/// Days of the first of each month of 30 years from 2000-01-01, `last`: of its last weekday instead.
std::vector<std::int64_t> month_days(bool last) {
  std::vector<std::int64_t> days;
  std::int64_t first = 10957;
  for (int month = 0; month < 360; ++month) {
    const int year = 2000 + month / 12, m = month % 12;
    const int length = m == 1 ? (year % 4 == 0 ? 29 : 28) : m == 3 || m == 5 || m == 8 || m == 10 ? 30 : 31;
    std::int64_t at = last ? first + length - 1 : first;
    while (last && (at + 3) % 7 > 4) --at;
    days.push_back(at);
    first += length;
  }
  return days;
}

TEST(BarsAYear, CalendarMonthsAndQuarters) {
  for (const bool last : {false, true}) {
    for (const int months : {1, 3, 6, 12}) {
      Bars b;
      const std::vector<std::int64_t> days = month_days(last);
      for (std::size_t k = 0; k < days.size(); k += static_cast<std::size_t>(months)) add(b, days[k] * day);
      EXPECT_EQ(assign_segments(b).gaps, 0) << months;
      EXPECT_NEAR(bars_a_year(b), 12.0 / months, 0.02) << months << (last ? ", last weekday" : ", first day");
    }
  }
  Bars holes;  // two years without five of the months
  const std::vector<std::int64_t> days = month_days(false);
  for (int k = 0; k < 29; ++k) {
    if (k % 6 != 5) add(holes, days[static_cast<std::size_t>(k)] * day);
  }
  EXPECT_NEAR(bars_a_year(holes), 12, 0.1);
}

TEST(BarsAYear, DaysWithAndWithoutWeekends) {
  Bars weekdays, all;
  for (int d = 0; d < 364; ++d) {
    if (d % 7 < 5) add(weekdays, monday + d * day);
    add(all, monday + d * day);
  }
  EXPECT_DOUBLE_EQ(bars_a_year(weekdays), 252);
  EXPECT_DOUBLE_EQ(bars_a_year(all), 365);
  EXPECT_DOUBLE_EQ(bar_seconds(weekdays), 86400);
}

TEST(BarsAYear, DoesNotDependOnTheNumberOfSymbols) {
  Bars one, two;
  for (int s = 0; s < 2; ++s) {
    for (int d = 0; d < 28; ++d) {
      for (int k = 0; k < 24 && d % 7 < 5; ++k) {
        if (s == 0) add(one, monday + d * day + k * hour);
        add(two, monday + d * day + k * hour, s);
      }
    }
  }
  EXPECT_DOUBLE_EQ(bars_a_year(two), bars_a_year(one));
}

TEST(Bars, AppendGivesNewSegmentsAndSliceKeepsThem) {
  Bars a = at_seconds({0, 60}), b = at_seconds({0, 60, 600});
  b.segment = {0, 0, 1};
  append_segment(a, b);
  EXPECT_EQ(a.segment, (std::vector<std::int32_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(a.size(), 5u);
  const Bars part = a.slice(1, 4);
  EXPECT_EQ(part.segment, (std::vector<std::int32_t>{0, 1, 1}));
  EXPECT_EQ(part.time[2], 60 * second);

  Bars c = at_seconds({0});
  c.extra.push_back({"funding", {1.0}});
  EXPECT_THROW(append_segment(a, c), InputError);
  Bars empty;
  append_segment(empty, c);
  append_segment(empty, c);
  EXPECT_EQ(empty.extra.front().values.size(), 2u);
}

}  // namespace
}  // namespace vulpes::market
