#include "vulpes/io/time_text.hpp"

#include <cstdio>

namespace vulpes::io {
namespace {

/// Reads digits from the front of a text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool accept(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  /// Number of digits that follow.
  int digits() const {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    return static_cast<int>(end - at_);
  }
  /// Value of the next `count` digits (the caller has counted them).
  int number(int count) {
    int value = 0;
    for (int k = 0; k < count; ++k) value = value * 10 + (text_[at_++] - '0');
    return value;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// Days since 1970-01-01 in the proleptic Gregorian calendar; years start in March so that the leap day is the last.
std::int64_t days_from_date(int year, int month, int day) {
  const std::int64_t y = year - (month <= 2);
  const std::int64_t era = (y >= 0 ? y : y - 399) / 400;
  const std::int64_t year_of_era = y - era * 400;
  const std::int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

int days_in_month(int year, int month) {
  constexpr int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return days[month - 1] + (month == 2 && leap);
}

/// `+hh:mm`, `+hhmm` or `+hh` with either sign.
std::optional<std::int64_t> offset_at(Cursor& c) {
  const bool negative = c.accept('-');
  if (!negative && !c.accept('+')) return {};
  const int width = c.digits();
  if (width != 2 && width != 4) return {};
  const int hours = c.number(2);
  int minutes = 0;
  if (width == 4) {
    minutes = c.number(2);
  } else if (c.accept(':')) {
    if (c.digits() != 2) return {};
    minutes = c.number(2);
  }
  if (hours > 23 || minutes > 59) return {};
  const std::int64_t seconds = hours * 3600 + minutes * 60;
  return (negative ? -seconds : seconds) * ns_per_second;
}

}  // namespace

std::optional<std::int64_t> parse_time(std::string_view text, std::int64_t offset_ns) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  Cursor c(text);

  int year = 0, month = 0, day = 0;
  if (c.digits() == 8) {
    year = c.number(4);
    month = c.number(2);
    day = c.number(2);
  } else if (c.digits() == 4) {
    year = c.number(4);
    const char separator = c.peek();
    if (separator != '-' && separator != '/' && separator != '.') return {};
    c.accept(separator);
    if (c.digits() < 1 || c.digits() > 2) return {};
    month = c.number(c.digits());
    if (!c.accept(separator) || c.digits() < 1 || c.digits() > 2) return {};
    day = c.number(c.digits());
  } else {
    return {};
  }
  if (year < 1678 || year > 2261 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) return {};

  int hour = 0, minute = 0, second = 0;
  std::int64_t fraction = 0;
  bool separated = c.accept('T') || c.accept('t');
  const bool clock_must_follow = separated;
  while (!separated && c.peek() == ' ') c.accept(' ');
  if (c.digits() > 0) {
    const int width = c.digits();
    if (width == 4 || width == 6) {
      hour = c.number(2);
      minute = c.number(2);
      if (width == 6) second = c.number(2);
    } else if (width <= 2) {
      hour = c.number(width);
      if (!c.accept(':') || c.digits() != 2) return {};
      minute = c.number(2);
      if (c.accept(':')) {
        if (c.digits() != 2) return {};
        second = c.number(2);
      }
    } else {
      return {};
    }
    if (c.accept('.') || c.accept(',')) {
      const int width_fraction = c.digits();
      if (width_fraction < 1) return {};
      std::int64_t unit = ns_per_second;
      for (int k = 0; k < width_fraction; ++k) {
        unit /= 10;
        fraction += unit * c.number(1);
      }
    }
    if (hour > 23 || minute > 59 || second > 59) return {};
    while (c.accept(' ')) {
    }
    if (c.accept('Z') || c.accept('z') || c.accept("UTC") || c.accept("GMT")) {
      offset_ns = 0;
    } else if (!c.at_end()) {
      const auto offset = offset_at(c);
      if (!offset) return {};
      offset_ns = *offset;
    }
  } else if (clock_must_follow) {
    return {};
  }
  if (!c.at_end()) return {};

  const std::int64_t seconds = days_from_date(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
  return seconds * ns_per_second + fraction - offset_ns;
}

std::string format_time(std::int64_t time_ns) {
  std::int64_t seconds = time_ns / ns_per_second;
  std::int64_t fraction = time_ns % ns_per_second;
  if (fraction < 0) {
    fraction += ns_per_second;
    --seconds;
  }
  std::int64_t days = seconds / 86400;
  std::int64_t in_day = seconds % 86400;
  if (in_day < 0) {
    in_day += 86400;
    --days;
  }
  const std::int64_t shifted = days + 719468;
  const std::int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const std::int64_t day_of_era = shifted - era * 146097;
  const std::int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t m = (5 * day_of_year + 2) / 153;
  const int day = static_cast<int>(day_of_year - (153 * m + 2) / 5 + 1);
  const int month = static_cast<int>(m < 10 ? m + 3 : m - 9);
  const int year = static_cast<int>(year_of_era + era * 400 + (month <= 2));

  char text[64];
  int length =
      std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d", year, month, day,
                    static_cast<int>(in_day / 3600), static_cast<int>(in_day / 60 % 60), static_cast<int>(in_day % 60));
  std::string result(text, static_cast<std::size_t>(length));
  if (fraction != 0) {
    length = std::snprintf(text, sizeof text, ".%09d", static_cast<int>(fraction));
    std::string decimals(text, static_cast<std::size_t>(length));
    decimals.erase(decimals.find_last_not_of('0') + 1);
    result += decimals;
  }
  return result + "Z";
}

std::optional<std::int64_t> parse_offset(std::string_view text) {
  if (text == "UTC" || text == "Z") return 0;
  Cursor c(text);
  const auto offset = offset_at(c);
  if (!offset || !c.at_end()) return {};
  return offset;
}

}  // namespace vulpes::io
