#include "vulpes/market/bars.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "vulpes/core/errors.hpp"

namespace vulpes::market {
namespace {

constexpr std::int64_t ns_per_second = 1'000'000'000;
constexpr double largest_ratio = 100;  // of prices that follow each other
constexpr std::int64_t ns_per_day = 86'400 * ns_per_second;

/// Calls f(begin, end) for each run of equal segment ids.
template <class F>
void for_each_segment(const std::vector<std::int32_t>& segment, F&& f) {
  for (std::size_t begin = 0; begin < segment.size();) {
    std::size_t end = begin + 1;
    while (end < segment.size() && segment[end] == segment[begin]) ++end;
    f(begin, end);
    begin = end;
  }
}

/// The most frequent distance of bars within segments, in ns; the shorter of equally frequent ones; 0 without any.
std::int64_t most_frequent_distance(const Bars& bars) {
  std::map<std::int64_t, std::int64_t> counts;
  for (std::size_t i = 1; i < bars.size(); ++i) {
    if (bars.segment[i] == bars.segment[i - 1]) ++counts[bars.time[i] - bars.time[i - 1]];
  }
  std::int64_t best = 0, most = 0;
  for (const auto& [distance, count] : counts) {
    if (count > most) best = distance, most = count;
  }
  return best;
}

/// Mean distance in days of bars that are longer than a day (by the median distance), gaps left out; 0 for shorter
/// ones.
double long_bar_days(const Bars& bars) {
  std::vector<std::int64_t> distances;
  for (std::size_t i = 1; i < bars.size(); ++i) {
    if (bars.segment[i] == bars.segment[i - 1]) distances.push_back(bars.time[i] - bars.time[i - 1]);
  }
  if (distances.empty()) return 0;
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  const std::int64_t median = *middle;
  if (median <= ns_per_day) return 0;
  double sum = 0, count = 0;
  for (const std::int64_t d : distances) {
    if (d > median + median / 2) continue;
    sum += static_cast<double>(d);
    ++count;
  }
  return sum / count / static_cast<double>(ns_per_day);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

std::int64_t time_of_day(std::int64_t time) { return time - floor_divide(time, ns_per_day) * ns_per_day; }

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", v);
  return text;
}

/// Indices i of the gaps between bars i - 1 and i of one series.
std::vector<std::size_t> find_gaps(const Bars& bars, std::size_t begin, std::size_t end, std::int64_t bar_ns) {
  std::vector<std::size_t> gaps;
  for (std::size_t i = begin + 1; i < end; ++i) {
    if (bars.time[i] - bars.time[i - 1] > bar_ns + bar_ns / 2) gaps.push_back(i);
  }
  return gaps;
}

/// Which of the gaps are closures of the market (rule: bars.hpp).
std::vector<bool> find_closures(const Bars& bars, const std::vector<std::size_t>& gaps, std::int64_t span_ns,
                                std::int64_t bar_ns) {
  constexpr std::int64_t longest = 10 * ns_per_day;
  constexpr double least_share = 0.05;
  constexpr std::int64_t least_count = 3;
  std::map<std::int64_t, std::int64_t> closing, opening;
  for (const std::size_t i : gaps) {
    ++closing[time_of_day(bars.time[i - 1])];
    ++opening[time_of_day(bars.time[i])];
  }
  const auto least =
      std::max(least_count, static_cast<std::int64_t>(std::ceil(least_share * static_cast<double>(gaps.size()))));
  std::vector<bool> closures(gaps.size());
  std::int64_t count = 0;
  for (std::size_t g = 0; g < gaps.size(); ++g) {
    const std::int64_t before = bars.time[gaps[g] - 1], after = bars.time[gaps[g]];
    closures[g] =
        after - before <= longest + bar_ns &&
        (bar_ns >= ns_per_day || closing[time_of_day(before)] >= least || opening[time_of_day(after)] >= least);
    count += closures[g];
  }
  const bool regular = count >= least_count && count * 14 * ns_per_day >= span_ns;
  if (!regular) closures.assign(gaps.size(), false);
  return closures;
}

}  // namespace

Bars Bars::slice(std::size_t begin, std::size_t end) const {
  const auto part = [&](const auto& v) {
    return std::decay_t<decltype(v)>(v.begin() + static_cast<std::ptrdiff_t>(begin),
                                     v.begin() + static_cast<std::ptrdiff_t>(end));
  };
  Bars r{part(time), part(open), part(high), part(low), part(close), part(volume), part(segment), {}};
  for (const Extra& e : extra) r.extra.push_back({e.name, part(e.values)});
  return r;
}

void append_segment(Bars& bars, const Bars& more) {
  if (bars.empty()) {
    for (const Bars::Extra& e : more.extra) bars.extra.push_back({e.name, {}});
  }
  bool same = bars.extra.size() == more.extra.size();
  for (std::size_t k = 0; same && k < more.extra.size(); ++k) same = bars.extra[k].name == more.extra[k].name;
  throw_if<InputError>(!same, "series with different extra columns cannot be joined; give all the same columns");

  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  std::int32_t id = -1;
  for (const std::int32_t s : bars.segment) id = std::max(id, s);
  for_each_segment(more.segment, [&](std::size_t begin, std::size_t end) {
    bars.segment.insert(bars.segment.end(), end - begin, ++id);
  });
  append(bars.time, more.time);
  append(bars.open, more.open);
  append(bars.high, more.high);
  append(bars.low, more.low);
  append(bars.close, more.close);
  append(bars.volume, more.volume);
  for (std::size_t k = 0; k < more.extra.size(); ++k) append(bars.extra[k].values, more.extra[k].values);
}

void check_bars(const Bars& bars, const BarPlace& where) {
  const auto fail = [&](std::size_t i, const char* column, const std::string& what) {
    throw InputError(where(i, column) + ": " + what);
  };
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double open = bars.open[i], high = bars.high[i], low = bars.low[i], close = bars.close[i];
    const auto price = [&](const char* column, double v) {
      if (!std::isfinite(v)) fail(i, column, "the price is not a finite number; remove the bar or mend the price");
      if (!(v > 0)) fail(i, column, "the price " + number(v) + " is not above 0; remove the bar or mend the price");
    };
    price("open", open);
    price("high", high);
    price("low", low);
    price("close", close);
    if (high < low) fail(i, "high", "high " + number(high) + " is below low " + number(low));
    if (open > high || open < low) {
      fail(i, "open", "open " + number(open) + " is outside low to high, " + number(low) + " to " + number(high));
    }
    if (close > high || close < low) {
      fail(i, "close", "close " + number(close) + " is outside low to high, " + number(low) + " to " + number(high));
    }
    if (high > largest_ratio * low) {
      fail(i, "high", "high " + number(high) + " is over 100 times low " + number(low) + "; mend the bar or remove it");
    }
    const bool follows = i > 0 && (bars.segment.empty() || bars.segment[i] == bars.segment[i - 1]);
    if (follows && (close > largest_ratio * bars.close[i - 1] || largest_ratio * close < bars.close[i - 1])) {
      fail(i, "close",
           "the close jumps from " + number(bars.close[i - 1]) + " to " + number(close) +
               ", over 100-fold; mend the price (unit, decimal point) or adjust the earlier ones for a split");
    }
    const double volume = bars.volume[i];
    if (!std::isfinite(volume)) fail(i, "volume", "the volume is not a finite number; use 0 where it is unknown");
    if (volume < 0) fail(i, "volume", "the volume " + number(volume) + " is negative");
    for (const Bars::Extra& e : bars.extra) {
      if (!std::isfinite(e.values[i]))
        fail(i, e.name.c_str(), "the value is not a finite number; fill it or drop the column");
    }
    if (follows && bars.time[i] <= bars.time[i - 1]) {
      fail(i, "time",
           bars.time[i] == bars.time[i - 1] ? "the time equals the previous bar's; remove one of them"
                                            : "the time is before the previous bar's; sort the bars by time");
    }
  }
}

void check_bars(const Bars& bars, const std::string& source, const std::vector<std::int64_t>& rows) {
  check_bars(bars, [&](std::size_t entry, const std::string& column) {
    const std::int64_t row = entry < rows.size() ? rows[entry] : static_cast<std::int64_t>(entry) + 1;
    return std::string(source).append(": row ").append(std::to_string(row)) + ", column '" + column + "'";
  });
}

GapReport assign_segments(Bars& bars, std::int64_t bar_seconds) {
  if (bars.segment.empty()) bars.segment.assign(bars.size(), 0);
  const std::int64_t bar_ns = bar_seconds > 0 ? bar_seconds * ns_per_second : most_frequent_distance(bars);
  GapReport report;
  report.bar_seconds = (bar_ns + ns_per_second / 2) / ns_per_second;

  std::vector<std::uint8_t> cut(bars.size(), 0);  // 1: a segment begins at this bar
  for_each_segment(bars.segment, [&](std::size_t begin, std::size_t end) {
    cut[begin] = 1;
    if (bar_ns == 0) return;
    const std::vector<std::size_t> gaps = find_gaps(bars, begin, end, bar_ns);
    const std::vector<bool> closures = find_closures(bars, gaps, bars.time[end - 1] - bars.time[begin], bar_ns);
    for (std::size_t g = 0; g < gaps.size(); ++g) {
      if (closures[g]) {
        ++report.closures;
        continue;
      }
      const std::size_t i = gaps[g];
      cut[i] = 1;
      ++report.gaps;
      report.missing += (bars.time[i] - bars.time[i - 1] + bar_ns / 2) / bar_ns - 1;
    }
  });
  std::int32_t id = -1;
  for (std::size_t i = 0; i < bars.size(); ++i) bars.segment[i] = id += cut[i];
  return report;
}

double bar_seconds(const Bars& bars) {
  return static_cast<double>(most_frequent_distance(bars)) / static_cast<double>(ns_per_second);
}

double bars_a_year(const Bars& bars) {
  if (bars.empty()) return 0;
  constexpr double days_a_year = 365.2425;
  if (const double days = long_bar_days(bars); days > 0) return days_a_year / days;

  // Days of each series: two symbols on one day are two days.
  std::vector<std::pair<int, std::int64_t>> days;  // (day of the week from Monday, bars)
  std::int64_t previous = 0;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const std::int64_t day = floor_divide(bars.time[i], ns_per_day);
    const bool joined = !days.empty() && day == previous && bars.time[i] > bars.time[i - 1];
    if (!joined) days.emplace_back(static_cast<int>(((day + 3) % 7 + 7) % 7), 0);  // 1970-01-01 was a Thursday
    ++days.back().second;
    previous = day;
  }
  std::map<std::int64_t, std::int64_t> counts;
  for (const auto& [weekday, count] : days) ++counts[count];
  std::int64_t mode = 0, most = 0;
  for (const auto& [count, frequency] : counts) {
    if (frequency >= most) mode = count, most = frequency;
  }
  std::array<bool, 7> full{};
  for (const auto& [weekday, count] : days) full[static_cast<std::size_t>(weekday)] |= 2 * count >= mode;
  return static_cast<double>(mode) * (full[5] && full[6] ? 365.0 : 252.0);
}

}  // namespace vulpes::market
