#include "vulpes/market/features.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "vulpes/core/errors.hpp"

namespace vulpes::market {
namespace {

constexpr std::int64_t ns_per_day = 86'400'000'000'000;

/// Count, mean and sum of squared deviations of a set of numbers; sets combine without cancellation (Chan et al. 1979).
struct Moments {
  double count = 0, mean = 0, squares = 0;

  void add(double v) {
    count += 1;
    const double d = v - mean;
    mean += d / count;
    squares += d * (v - mean);
  }
  friend Moments operator+(const Moments& a, const Moments& b) {
    if (a.count == 0) return b;
    if (b.count == 0) return a;
    const double n = a.count + b.count, d = b.mean - a.mean;
    return {n, a.mean + d * (b.count / n), a.squares + b.squares + d * d * (a.count * b.count / n)};
  }
  double deviation() const { return std::sqrt(squares / count); }
};

/// Calls f(t, moments of x[t - window + 1 .. t]) for t in [begin, end), with shorter windows at first. The segment is
/// cut into blocks of one window; a window is a suffix of one block and a prefix of the next (van Herk 1992).
template <class X, class F>
void rolling_moments(std::size_t begin, std::size_t end, std::size_t window, const X& x, F&& f) {
  std::vector<Moments> suffix(window);  // suffix[k]: positions k ... window - 1 of the block before
  for (std::size_t block = begin; block < end; block += window) {
    const std::size_t block_end = std::min(block + window, end);
    Moments prefix;
    for (std::size_t t = block; t < block_end; ++t) {
      prefix.add(x(t));
      const std::size_t k = t - block + 1;
      f(t, k < window ? suffix[k] + prefix : prefix);
    }
    if (block_end == block + window) {
      Moments m;
      for (std::size_t k = window; k-- > 0;) suffix[k] = (m.add(x(block + k)), m);
    }
  }
}

/// Exponential average whose weights sum to 1 from the first value on.
class Ema {
 public:
  explicit Ema(double weight) : weight_(weight) {}
  double add(double v) {
    sum_ += weight_ * (v - sum_);
    mass_ += weight_ * (1.0 - mass_);
    return sum_ / mass_;
  }

 private:
  double weight_, sum_ = 0, mass_ = 0;
};

/// Bars until the missing history of an exponential average weighs under 1 %.
int ema_warm_up(double weight) {
  return weight >= 1 ? 1 : static_cast<int>(std::ceil(std::log(0.01) / std::log1p(-weight)));
}
double span_weight(std::int64_t span) { return 2.0 / (static_cast<double>(span) + 1.0); }

/// Builds the table column by column.
class Builder {
 public:
  Builder(const Bars& bars, FeatureSet& set) : bars_(bars), set_(set), log_close_(bars.size()) {
    for (std::size_t t = 0; t < bars.size(); ++t) log_close_[t] = std::log(bars.close[t]);
    for (std::size_t begin = 0; begin < bars.size();) {
      std::size_t end = begin + 1;
      while (end < bars.size() && bars.segment[end] == bars.segment[begin]) ++end;
      segments_.emplace_back(begin, end);
      begin = end;
    }
  }

  void returns(std::int64_t horizon) {
    auto& out = column("return_" + std::to_string(horizon), "return", horizon);
    const auto h = static_cast<std::size_t>(horizon);
    for_each_segment([&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin + h; t < end; ++t) out[t] = log_close_[t] - log_close_[t - h];
    });
  }

  void volatility(std::int64_t window) {
    auto& out = column("volatility_" + std::to_string(window), "volatility", window);
    const auto square = [&](std::size_t t) {
      const double r = log_close_[t] - log_close_[t - 1];
      return r * r;
    };
    for_each_segment([&](std::size_t begin, std::size_t end) {
      rolling_moments(begin + 1, end, static_cast<std::size_t>(window), square,
                      [&](std::size_t t, const Moments& m) { out[t] = std::sqrt(m.mean); });
    });
  }

  void mean_distance(std::int64_t window) {
    auto& out = column("mean_distance_" + std::to_string(window), "mean_distance", window - 1);
    over_log_close(window, [&](std::size_t t, const Moments& m) { out[t] = log_close_[t] - m.mean; });
  }

  void bollinger(std::int64_t window) {
    auto& out = column("bollinger_" + std::to_string(window), "bollinger", window - 1);
    over_log_close(window, [&](std::size_t t, const Moments& m) {
      out[t] = m.squares > 0 ? (log_close_[t] - m.mean) / (2.0 * m.deviation()) : 0.0;
    });
  }

  void range(std::int64_t window) {
    auto& out = column("range_" + std::to_string(window), "range", window - 1);
    const auto width = [&](std::size_t t) { return std::log(bars_.high[t] / bars_.low[t]); };
    for_each_segment([&](std::size_t begin, std::size_t end) {
      rolling_moments(begin, end, static_cast<std::size_t>(window), width,
                      [&](std::size_t t, const Moments& m) { out[t] = m.mean; });
    });
  }

  void volume(std::int64_t window) {
    auto& out = column("volume_z_" + std::to_string(window), "volume", window - 1);
    for_each_segment([&](std::size_t begin, std::size_t end) {
      rolling_moments(
          begin, end, static_cast<std::size_t>(window), [&](std::size_t t) { return bars_.volume[t]; },
          [&](std::size_t t, const Moments& m) {
            out[t] = m.squares > 0 ? (bars_.volume[t] - m.mean) / m.deviation() : 0.0;
          });
    });
  }

  void rsi(std::int64_t window) {
    const double weight = 1.0 / static_cast<double>(window);
    auto& out = column("rsi_" + std::to_string(window), "rsi", ema_warm_up(weight));
    for_each_segment([&](std::size_t begin, std::size_t end) {
      Ema gain(weight), loss(weight);
      for (std::size_t t = begin + 1; t < end; ++t) {
        const double move = bars_.close[t] - bars_.close[t - 1];
        const double g = gain.add(std::max(move, 0.0)), l = loss.add(std::max(-move, 0.0));
        out[t] = g + l > 0 ? 100.0 * g / (g + l) : 50.0;
      }
    });
  }

  void macd(std::int64_t fast, std::int64_t slow, std::int64_t signal) {
    const int slowest = ema_warm_up(span_weight(std::max(fast, slow)));
    auto& line = column("macd", "macd", slowest);
    auto& histogram = column("macd_histogram", "macd", slowest + ema_warm_up(span_weight(signal)));
    for_each_segment([&](std::size_t begin, std::size_t end) {
      Ema f(span_weight(fast)), s(span_weight(slow)), average(span_weight(signal));
      for (std::size_t t = begin; t < end; ++t) {
        // Relative to the segment's first close: a constant drops out of the difference, its rounding with it.
        const double c = log_close_[t] - log_close_[begin];
        line[t] = f.add(c) - s.add(c);
        histogram[t] = line[t] - average.add(line[t]);
      }
    });
  }

  void calendar() {
    constexpr std::int64_t week = 7 * ns_per_day, monday = 4 * ns_per_day;  // 1970-01-05 was a Monday
    cycle("day", ns_per_day, 0);
    cycle("week", week, monday);
  }

  void extra(const Bars::Extra& e) {
    column(e.name, e.name, 0) = e.values;
    ++set_.extra_columns;
  }

  /// Moves the columns to the row-major table; rows that are not usable become 0.
  void finish() {
    set_.rows = bars_.size();
    set_.columns = static_cast<int>(columns_.size());
    const std::size_t width = columns_.size();
    set_.values.assign(set_.rows * width, 0.0);
    set_.usable.assign(set_.rows, 0);
    for_each_segment([&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin + static_cast<std::size_t>(set_.warm_up); t < end; ++t) {
        set_.usable[t] = 1;
        for (std::size_t j = 0; j < width; ++j) set_.values[t * width + j] = (*columns_[j])[t];
      }
    });
  }

 private:
  using Column = std::vector<double>;

  Column& column(const std::string& name, const std::string& group, std::int64_t warm_up, bool normalised = true) {
    set_.names.push_back(name);
    set_.groups.push_back(group);
    set_.normalised.push_back(normalised);
    set_.warm_up = std::max(set_.warm_up, static_cast<int>(warm_up));
    columns_.push_back(std::make_unique<Column>(bars_.size(), 0.0));
    return *columns_.back();
  }

  template <class F>
  void for_each_segment(F&& f) const {
    for (const auto& [begin, end] : segments_) f(begin, end);
  }

  template <class F>
  void over_log_close(std::int64_t window, F&& f) const {
    for_each_segment([&](std::size_t begin, std::size_t end) {
      rolling_moments(
          begin, end, static_cast<std::size_t>(window), [&](std::size_t t) { return log_close_[t]; }, f);
    });
  }

  void cycle(const std::string& name, std::int64_t period, std::int64_t start) {
    auto& sine = column(name + "_sin", "calendar", 0, false);
    auto& cosine = column(name + "_cos", "calendar", 0, false);
    for (std::size_t t = 0; t < bars_.size(); ++t) {
      std::int64_t phase = (bars_.time[t] - start) % period;
      if (phase < 0) phase += period;
      const double angle = 2.0 * std::numbers::pi * static_cast<double>(phase) / static_cast<double>(period);
      sine[t] = std::sin(angle);
      cosine[t] = std::cos(angle);
    }
  }

  const Bars& bars_;
  FeatureSet& set_;
  Column log_close_;
  std::vector<std::pair<std::size_t, std::size_t>> segments_;
  std::vector<std::unique_ptr<Column>> columns_;
};

/// Quantile with linear interpolation between order statistics; reorders `v`.
double quantile(std::vector<double>& v, double q) {
  const double position = q * static_cast<double>(v.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto at = v.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(v.begin(), at, v.end());
  const double low = *at;
  if (below + 1 == v.size()) return low;
  const double high = *std::min_element(at + 1, v.end());
  return low + (position - static_cast<double>(below)) * (high - low);
}

}  // namespace

FeatureSet compute_features(const Bars& bars, const io::FeaturesConfig& config) {
  throw_if<InputError>(config.macd.size() != 3, "features.macd needs three spans (fast, slow, signal), not " +
                                                    std::to_string(config.macd.size()));
  FeatureSet set;
  Builder build(bars, set);
  for (const std::int64_t h : config.return_horizons) build.returns(h);
  for (const std::int64_t w : config.volatility_windows) build.volatility(w);
  for (const std::int64_t w : config.mean_windows) build.mean_distance(w);
  build.range(config.range_window);
  build.volume(config.volume_window);
  build.rsi(config.rsi_window);
  build.macd(config.macd[0], config.macd[1], config.macd[2]);
  build.bollinger(config.bollinger_window);
  if (config.calendar) build.calendar();
  for (const Bars::Extra& e : bars.extra) build.extra(e);
  build.finish();
  return set;
}

Normaliser Normaliser::fit(const FeatureSet& features, std::size_t begin, std::size_t end, double clip,
                           std::vector<std::string>* warnings) {
  const auto width = static_cast<std::size_t>(features.columns);
  Normaliser n;
  n.median.assign(width, 0.0);
  n.scale.assign(width, 1.0);
  n.clip = clip;
  std::vector<std::size_t> rows;
  for (std::size_t t = begin; t < end; ++t) {
    if (features.usable[t]) rows.push_back(t);
  }
  throw_if<InputError>(rows.empty(), "no bar of [" + std::to_string(begin) + ", " + std::to_string(end) +
                                         ") can be used to fit the features: segments need more than " +
                                         std::to_string(features.warm_up) + " bars to warm them up");
  std::vector<double> values(rows.size());
  for (std::size_t j = 0; j < width; ++j) {
    if (!features.normalised[j]) continue;
    for (std::size_t i = 0; i < rows.size(); ++i) values[i] = features.values[rows[i] * width + j];
    n.median[j] = quantile(values, 0.5);
    const double spread = quantile(values, 0.75) - quantile(values, 0.25);
    if (spread > 0) {
      n.scale[j] = spread;
    } else if (warnings != nullptr) {
      warnings->push_back("feature '" + features.names[j] +
                          "' has an inter-quartile range of 0 in the training range; scaled by 1");
    }
  }
  return n;
}

std::vector<float> Normaliser::apply(const FeatureSet& features) const {
  const auto width = static_cast<std::size_t>(features.columns);
  throw_if<InputError>(median.size() != width, "the bars give " + std::to_string(width) +
                                                   " feature columns, but the normaliser was fitted on " +
                                                   std::to_string(median.size()) +
                                                   "; use the same columns and feature settings");
  std::vector<float> out(features.values.size(), 0.0f);
  for (std::size_t t = 0; t < features.rows; ++t) {
    if (!features.usable[t]) continue;
    for (std::size_t j = 0; j < width; ++j) {
      const double z = (features.values[t * width + j] - median[j]) / scale[j];
      out[t * width + j] = static_cast<float>(std::clamp(z, -clip, clip));
    }
  }
  return out;
}

std::vector<Bar> account_bars(const Bars& bars, const io::AccountConfig& config) {
  std::vector<Bar> out(bars.size());
  Ema atr(1.0 / static_cast<double>(config.atr_window));
  const Ema fresh = atr;
  for (std::size_t t = 0; t < bars.size(); ++t) {
    double high = bars.high[t], low = bars.low[t];
    if (t > 0 && bars.segment[t] == bars.segment[t - 1]) {
      high = std::max(high, bars.close[t - 1]);
      low = std::min(low, bars.close[t - 1]);
    } else {
      atr = fresh;
    }
    out[t] = {bars.open[t], bars.high[t], bars.low[t], bars.close[t], atr.add(high - low)};
  }
  return out;
}

}  // namespace vulpes::market
