// Price bars of one or several series: checks, segments, gaps, bars a year.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace vulpes::market {

/// Bars in columns. Times are strictly increasing within a segment; bars of one segment are consecutive. No feature
/// window, n-step return or episode crosses a segment's end.
struct Bars {
  /// A further numeric column; becomes a feature of its own.
  struct Extra {
    std::string name;
    std::vector<double> values;
  };

  std::vector<std::int64_t> time;  ///< start of the bar, ns since 1970-01-01T00:00Z
  std::vector<double> open, high, low, close, volume;
  std::vector<std::int32_t> segment;
  std::vector<Extra> extra;

  std::size_t size() const { return time.size(); }
  bool empty() const { return time.empty(); }
  /// Bars [begin, end), with their segment ids.
  Bars slice(std::size_t begin, std::size_t end) const;
};

/// Appends `more`; its segments get ids of their own. Throws InputError if the extra columns differ in name or order.
void append_segment(Bars& bars, const Bars& more);

/// Text that says where an entry stands, as in `bars.csv: row 2, column 'close'`.
using BarPlace = std::function<std::string(std::size_t entry, const std::string& column)>;

/// Throws InputError with the place of the first bar that breaks a rule: prices finite and above 0, high >= open, close
/// and low, low <= open and close, volume finite and not negative, extra columns finite, time strictly increasing
/// within a segment. Refuses also what no market does but a wrong unit or a lost decimal point: a high over 100 times
/// the low, a close over 100 times, or under a hundredth of, the close before it in its segment.
void check_bars(const Bars& bars, const BarPlace& where);

/// The same for a file: places read `<source>: row <rows[entry]>, column '<name>'`; empty `rows`: entry + 1.
void check_bars(const Bars& bars, const std::string& source, const std::vector<std::int64_t>& rows);

/// What assign_segments found.
struct GapReport {
  std::int64_t bar_seconds = 0;  ///< bar length; 0 when no segment has two bars
  std::int64_t gaps = 0;         ///< gaps at which a segment was cut
  std::int64_t missing = 0;      ///< bars missing in those
  std::int64_t closures = 0;     ///< gaps taken for the market's own closing hours and trained through
};

/// Cuts segments at gaps. On entry `bars.segment` holds one id a series (symbol), or is empty for one series; on return
/// ids count up from 0.
///
/// The bar length is the most frequent distance of bars (the shorter of equally frequent ones) unless `bar_seconds` is
/// given. A gap is a distance of more than one bar (tolerance half a bar). It is cut unless it is a *closure*, when the
/// market itself was closed: a position is carried through those, so their gap risk belongs to the returns that an
/// agent must learn, and cutting there would leave daily data in pieces of five bars and hourly FX in pieces of 120,
/// shorter than the features' warm-up. Closures are told from missing data by their regularity, within each series:
///  - the gap lasts at most 10 days (the longest exchange holidays);
///  - its last bar before, or its first bar after, is at a time of day (UTC) that at least 5 % of the series' gaps
///  share,
///    and at least 3: sessions close and open on the clock (a clock change gives two such times), data go missing at
///    any time. Bars of a day and longer are all at one time of day and always pass;
///  - gaps that pass are frequent, at least one in two weeks on average: a market that closes does so at least weekly.
GapReport assign_segments(Bars& bars, std::int64_t bar_seconds = 0);

/// The most frequent distance of bars within segments in seconds; the shorter of equally frequent ones; 0 without any.
double bar_seconds(const Bars& bars);

/// Bars a year, for annualised figures: the most frequent number of bars a day (UTC days that have bars; the larger of
/// equally frequent ones) times 252, or times 365 where Saturdays and Sundays are traded (each has a day of at least
/// half that number of bars, so that FX's Sunday evening does not count). Bars longer than a day: 365.2425 days / their
/// mean distance, gaps (over 1.5 times the median distance) left out: calendar months have no one length. 0 for no
/// bars.
double bars_a_year(const Bars& bars);

}  // namespace vulpes::market
