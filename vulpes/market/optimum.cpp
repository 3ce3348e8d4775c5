// Relative value iteration on (exposure e, component estimate m), average log growth a bar.
//
// One bar in units of equity and close at t: a position e and a trade d = share * (target - e), filled at price F for
// fee f, give 1 + x with x = e A + d B, A = C - 1, B = C - F (1 + sign(d) f), C the next close over this one. The
// exposure becomes
//   e' = p (1 + A) / (1 + x),  p = e + d.
// Both are smooth in e and d, so nothing is evaluated draw by draw within the iteration:
//  - log(1 + x) by its cubic Taylor polynomial, whose expectation needs the moments E[A^i B^k; filled] only (the rest
//  is
//    x^4 / 4: 1e-6 basis points at a bar's standard deviation of 0.44 %);
//  - the value h(e', m') to first order in e' - p = p ((1 - e) A - d B), which needs E[w(m'); filled], E[A w; filled]
//  and
//    E[B w; filled] for the interpolation weights w of the grid of m'. This keeps the drift of short positions, worth
//    over 1 % of the growth.
// Moments and weights are means over the draws, for each grid point of m, order type and side. Each grid point has
// draws of its own: their errors then average out in the growth, whose scatter falls from 0.3 % to a few hundredths.
#include "vulpes/market/optimum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/spaces.hpp"
#include "vulpes/core/sums.hpp"
#include "vulpes/market/features.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::market {
namespace {

constexpr int cases = 6;  // order type * 2 + (1 for a sell)
constexpr int actions = exposure_levels * order_types * urgencies;

int order_case(OrderType order, bool sell) { return 2 * static_cast<int>(order) + (sell ? 1 : 0); }

/// E[A^i B^k; filled] for i + k = 1, 2, 3.
struct Moments {
  double a = 0, b = 0, aa = 0, ab = 0, bb = 0, aaa = 0, aab = 0, abb = 0, bbb = 0;

  void add(double A, double B) {
    a += A, b += B;
    aa += A * A, ab += A * B, bb += B * B;
    aaa += A * A * A, aab += A * A * B, abb += A * B * B, bbb += B * B * B;
  }
  void scale(double s) {
    for (double* v : {&a, &b, &aa, &ab, &bb, &aaa, &aab, &abb, &bbb}) *v *= s;
  }
  /// E[log(1 + e A + d B); filled].
  double log_growth(double e, double d) const {
    const double x = e * a + d * b;
    const double xx = e * e * aa + 2.0 * e * d * ab + d * d * bb;
    const double xxx = e * e * e * aaa + 3.0 * e * e * d * aab + 3.0 * e * d * d * abb + d * d * d * bbb;
    return x - xx / 2.0 + xxx / 3.0;
  }
};

/// Everything about the next bar given m that does not depend on the account.
struct NextBar {
  Moments always;  // of A alone: b = 0
  std::array<Moments, cases> filled;
  std::vector<double> weight, weight_a;              // [grid] E[w], E[A w]
  std::array<std::vector<double>, cases> w, wa, wb;  // [grid] E[w; filled], E[A w; filled], E[B w; filled]
};

/// Uniform grid of the estimate, with Catmull & Rom's (1974) cubic weights, linear beyond the ends' neighbours.
struct EstimateGrid {
  double first = 0, step = 1;
  int points = 0;

  double operator[](int i) const { return first + step * i; }
  /// Cell and position in it; positions beyond the ends stay at the end.
  int locate(double v, double& t) const {
    const double u = std::clamp((v - first) / step, 0.0, static_cast<double>(points - 1));
    const int i = std::min(static_cast<int>(u), points - 2);
    t = u - i;
    return i;
  }
  /// Weights of the four points begin ... begin + 3.
  int weights(double v, double w[4]) const {
    double t;
    const int i = locate(v, t);
    const double t2 = t * t, t3 = t2 * t;
    w[0] = 0.5 * (-t3 + 2.0 * t2 - t);
    w[1] = 0.5 * (3.0 * t3 - 5.0 * t2 + 2.0);
    w[2] = 0.5 * (-3.0 * t3 + 4.0 * t2 + t);
    w[3] = 0.5 * (t3 - t2);
    if (i == 0) {  // the missing neighbour lies on the line through the first two
      const double ghost = w[0];
      w[0] = w[1] + 2.0 * ghost, w[1] = w[2] - ghost, w[2] = w[3], w[3] = 0.0;
      return 0;
    }
    if (i == points - 2) {
      const double ghost = w[3];
      w[3] = w[2] + 2.0 * ghost, w[2] = w[1] - ghost, w[1] = w[0], w[0] = 0.0;
      return points - 4;
    }
    return i - 1;
  }
};

/// Draws of the log prices within the next bar, relative to this close, and of the next estimate.
struct Draws {
  int count = 0, substeps = 0;
  std::vector<double> price;  // [substeps][count]
  std::vector<double> state;  // [count] m'
};

/// Rescales v to standard deviation `sd` around 0 (antithetic draws have mean 0).
void match_variance(double* v, int n, double sd) {
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += v[i] * v[i];
  const double scale = squares > 0 ? sd / std::sqrt(squares / n) : 1.0;
  for (int i = 0; i < n; ++i) v[i] *= scale;
}

/// Antithetic draws at estimate m, the close's and each sub-step's variance matched.
Draws make_draws(const io::SyntheticConfig& c, const ComponentFilter& filter, bool component_known, std::uint32_t seed,
                 std::uint64_t point, double m) {
  Draws d;
  const int half = static_cast<int>((c.optimum_draws + 1) / 2);
  d.count = 2 * half;
  d.substeps = static_cast<int>(c.substeps);
  const double phi = std::pow(c.phi, 1.0 / d.substeps);
  const double component_sd = c.component_sd * std::sqrt(1.0 - phi * phi);
  const double walk_sd = c.walk_sd / std::sqrt(static_cast<double>(d.substeps));
  const double variance = component_known ? 0.0 : filter.variance;
  const auto n = static_cast<std::size_t>(d.count);
  const auto row = [&](int j) { return d.price.data() + static_cast<std::size_t>(j) * n; };
  d.price.resize(static_cast<std::size_t>(d.substeps) * n);
  d.state.resize(n);

  const auto draw = [&](int step, int i) {
    const std::uint64_t iteration =
        point * static_cast<std::uint64_t>(d.substeps + 1) + static_cast<std::uint64_t>(step);
    return normal_pair(random_words({seed, 0}, Purpose::value_iteration, iteration, static_cast<std::uint32_t>(i)));
  };
  for (int i = 0; i < half; ++i) {
    const double start = std::sqrt(variance) * draw(0, i).first;  // x at t less its estimate
    double x = start, walk = 0;
    for (int j = 0; j < d.substeps; ++j) {
      const NormalPair z = draw(j + 1, i);
      x = phi * x + component_sd * z.first;
      walk += walk_sd * z.second;
      row(j)[i] = x - start + walk;
      row(j)[i + half] = -row(j)[i];
    }
    d.state[static_cast<std::size_t>(i)] = x;
    d.state[static_cast<std::size_t>(i + half)] = -x;
  }
  double power = 1;
  for (int j = 0; j < d.substeps; ++j) {
    power *= phi;
    const double sd = std::sqrt((power - 1.0) * (power - 1.0) * variance +
                                c.component_sd * c.component_sd * (1.0 - power * power) + walk_sd * walk_sd * (j + 1));
    match_variance(row(j), d.count, sd);
    if (j == d.substeps - 1) {
      if (component_known) {
        match_variance(d.state.data(), d.count, c.component_sd * std::sqrt(1.0 - power * power));
      } else {
        for (std::size_t i = 0; i < n; ++i) d.state[i] = filter.gain * row(j)[i];
      }
    }
    for (std::size_t i = 0; i < n; ++i) row(j)[i] += (power - 1.0) * m;
  }
  for (double& v : d.state) v += c.phi * m;
  return d;
}

/// ATR over close as it occurs: the policy does not condition on it, but passive orders depend on its distribution.
std::vector<double> sample_atr(const io::SyntheticConfig& c, const io::AccountConfig& account, std::uint32_t seed) {
  constexpr std::size_t settle = 512, sample = 16384;
  const std::vector<Bar> bars = account_bars(generate_synthetic(c, {seed, 0xffffffffu}, 0, settle + sample), account);
  std::vector<double> atr(sample);
  for (std::size_t i = 0; i < sample; ++i) atr[i] = bars[settle + i].atr / bars[settle + i].close;
  return atr;
}

NextBar next_bar(const Draws& draws, const std::vector<double>& atr, const AccountRules& rules,
                 const EstimateGrid& grid) {
  NextBar r;
  const auto points = static_cast<std::size_t>(grid.points);
  for (auto* v : {&r.weight, &r.weight_a}) v->assign(points, 0.0);
  for (auto* family : {&r.w, &r.wa, &r.wb}) {
    for (auto& v : *family) v.assign(points, 0.0);
  }
  const auto add = [](std::vector<double>& to, int at, const double w[4], double factor) {
    double* p = to.data() + at;
    for (int k = 0; k < 4; ++k) p[k] += factor * w[k];
  };

  constexpr int chunk = 256;
  double high[chunk], low[chunk];
  const int last = draws.substeps - 1;
  for (int begin = 0; begin < draws.count; begin += chunk) {
    const int n = std::min(chunk, draws.count - begin);
    const auto row = [&](int j) {
      return draws.price.data() + static_cast<std::size_t>(j) * static_cast<std::size_t>(draws.count) + begin;
    };
    for (int i = 0; i < n; ++i) high[i] = -1e300, low[i] = 1e300;
    for (int j = 0; j <= last; ++j) {
      const double* p = row(j);
      for (int i = 0; i < n; ++i) {
        high[i] = high[i] > p[i] ? high[i] : p[i];
        low[i] = low[i] < p[i] ? low[i] : p[i];
      }
    }
    for (int i = 0; i < n; ++i) {
      const auto index = static_cast<std::size_t>(begin + i);
      const double A = std::expm1(row(last)[i]);
      const double close = 1.0 + A;
      const Bar decided{1.0, 1.0, 1.0, 1.0, atr[index % atr.size()]};
      const Bar next{std::exp(row(0)[i]), std::exp(high[i]), std::exp(low[i]), close, 0.0};
      double w[4];
      const int at = grid.weights(draws.state[index], w);
      r.always.add(A, 0.0);
      add(r.weight, at, w, 1.0);
      add(r.weight_a, at, w, A);
      for (int c = 0; c < cases; ++c) {
        const double side = c % 2 == 0 ? 1.0 : -1.0;
        const Fill fill = execute(rules, static_cast<OrderType>(c / 2), side, decided, next);
        if (!fill.filled) continue;
        const double B = close - fill.price - side * fill.fee;
        const auto k = static_cast<std::size_t>(c);
        r.filled[k].add(A, B);
        add(r.wb[k], at, w, B);
        if (c >= 2) {  // a market order always fills: weight and weight_a hold
          add(r.w[k], at, w, 1.0);
          add(r.wa[k], at, w, A);
        }
      }
    }
  }
  const double scale = 1.0 / draws.count;
  r.always.scale(scale);
  for (Moments& f : r.filled) f.scale(scale);
  const auto scale_all = [&](std::vector<double>& v) {
    for (double& x : v) x *= scale;
  };
  scale_all(r.weight);
  scale_all(r.weight_a);
  for (auto* family : {&r.w, &r.wa, &r.wb}) {
    for (auto& v : *family) scale_all(v);
  }
  return r;
}

/// Levels and points beside them: h has kinks half way between levels only, exposure stays near one of them.
std::vector<double> exposure_nodes(const AccountRules& rules) {
  constexpr double beside = 0.04;
  std::vector<double> all, nodes;
  for (int level = 0; level < exposure_levels; ++level) {
    const double v = capped_level(rules, level);
    all.insert(all.end(), {v - beside, v, v + beside});
  }
  std::sort(all.begin(), all.end());
  for (const double v : all) {
    if (nodes.empty() || v - nodes.back() > 1e-3) nodes.push_back(v);
  }
  return nodes;
}

/// Expected values of the continuation after one bar; one set for each exposure node and estimate.
struct Continuation {
  double stay = 0, stay_drift = 0;                      // E[h], E[A dh/de]
  std::array<double, cases> h{}, drift_a{}, drift_b{};  // E[h; filled], E[A dh/de; filled], E[B dh/de; filled]
};

}  // namespace

ComponentFilter ComponentFilter::steady_state(const io::SyntheticConfig& c) {
  ComponentFilter f;
  f.phi = c.phi;
  const double q = c.component_sd * c.component_sd * (1.0 - c.phi * c.phi);
  const double r = c.walk_sd * c.walk_sd;
  const double move = c.phi - 1.0;
  double p = c.component_sd * c.component_sd;
  for (int i = 0; i < 1'000'000; ++i) {
    f.innovation_variance = move * move * p + q + r;
    f.gain = (c.phi * move * p + q) / f.innovation_variance;
    const double next = c.phi * c.phi * p + q - f.gain * f.gain * f.innovation_variance;
    const bool settled = std::fabs(next - p) <= 1e-15 * p;
    p = next;
    if (settled) break;
  }
  f.variance = p;
  return f;
}

struct ReferencePolicy::Solution {
  io::AccountConfig account;
  AccountRules rules;
  ReferenceOptions options;
  ComponentFilter filter;
  EstimateGrid grid;
  std::vector<double> nodes;
  std::vector<NextBar> next;               // [grid]; its weights are released after solving
  std::vector<Continuation> continuation;  // [grid][nodes]
  double growth = 0;
  int iterations = 0;

  const Continuation& at(int m, std::size_t node) const {
    return continuation[static_cast<std::size_t>(m) * nodes.size() + node];
  }

  /// Node below p (or the last but one) and the position beyond it; linear outside the nodes.
  std::size_t locate(double p, double& t) const {
    const auto above = std::upper_bound(nodes.begin() + 1, nodes.end() - 1, p);
    const auto i = static_cast<std::size_t>(above - nodes.begin()) - 1;
    t = (p - nodes[i]) / (nodes[i + 1] - nodes[i]);
    return i;
  }

  /// A trade from e by d: where p = e + d lies among the nodes.
  struct Trade {
    double d = 0, p = 0, t = 0;
    std::size_t node = 0;
    bool nothing = false;  ///< the target is the nearest level
  };
  Trade trade(double e, int level, int urgency) const {
    Trade r;
    r.nothing = is_nearest_level(rules, level, e);
    r.d = r.nothing ? 0.0 : urgency_share(urgency) * (capped_level(rules, level) - e);
    r.p = e + r.d;
    r.node = locate(r.p, r.t);
    return r;
  }

  /// Expected growth of the next bar at grid point m.
  double expected_growth(int m, double e, double d, int c) const {
    const NextBar& n = next[static_cast<std::size_t>(m)];
    const Moments& f = n.filled[static_cast<std::size_t>(c)];
    return f.log_growth(e, d) + n.always.log_growth(e, 0.0) - f.log_growth(e, 0.0);
  }

  double stay_value(int m, double e, std::size_t node, double t) const {
    const Continuation &low = at(m, node), &high = at(m, node + 1);
    return low.stay + t * (high.stay - low.stay) +
           e * (1.0 - e) * (low.stay_drift + t * (high.stay_drift - low.stay_drift));
  }

  /// E[h(e', m')] of a trade with order case c; `stay` is where e itself lies.
  double trade_value(int m, double e, const Trade& trade, int c, const Trade& stay) const {
    const auto k = static_cast<std::size_t>(c);
    const Continuation &low = at(m, trade.node), &high = at(m, trade.node + 1);
    const auto mix = [&](double a, double b) { return a + trade.t * (b - a); };
    const double filled = mix(low.h[k], high.h[k]) + trade.p * ((1.0 - e) * mix(low.drift_a[k], high.drift_a[k]) -
                                                                trade.d * mix(low.drift_b[k], high.drift_b[k]));
    if (c < 2) return filled;
    const Continuation &l = at(m, stay.node), &h = at(m, stay.node + 1);
    const auto rest = [&](double a, double b) { return a + stay.t * (b - a); };
    const double cancelled = rest(l.stay - l.h[k], h.stay - h.h[k]) +
                             e * (1.0 - e) * rest(l.stay_drift - l.drift_a[k], h.stay_drift - h.drift_a[k]);
    return filled + cancelled;
  }

  /// Calls f(action, trade, case) for every distinct action at e; case -1: no trade.
  template <class F>
  void for_each_action(double e, F&& f) const {
    bool stayed = false;
    for (int level = 0; level < exposure_levels; ++level) {
      for (int urgency = 0; urgency < (options.market_orders_only ? 1 : urgencies); ++urgency) {
        const Trade t = trade(e, level, urgency);
        if (t.nothing) {
          if (!stayed) f(Action{static_cast<std::uint8_t>(level), 0, 0}, t, -1);
          stayed = true;
          continue;
        }
        for (int order = 0; order < (options.market_orders_only ? 1 : order_types); ++order) {
          f(Action{static_cast<std::uint8_t>(level), static_cast<std::uint8_t>(order),
                   static_cast<std::uint8_t>(urgency)},
            t, order_case(static_cast<OrderType>(order), t.d < 0.0));
        }
      }
    }
  }

  void iterate();
};

void ReferencePolicy::Solution::iterate() {
  const auto points = static_cast<std::size_t>(grid.points), n = nodes.size();
  std::vector<double> h(points * n, 0.0), slope(points * n, 0.0), updated(points * n, 0.0);  // [nodes][grid]
  continuation.assign(points * n, {});

  // What does not change: each node's actions, and their expected growth at each grid point.
  struct Choice {
    Trade trade;
    int order_case;
    std::vector<double> growth;  // [grid]
  };
  std::vector<std::vector<Choice>> choices(n);
  std::vector<Trade> stays(n);
  for (std::size_t e = 0; e < n; ++e) {
    stays[e].nothing = true;
    stays[e].p = nodes[e];
    stays[e].node = locate(nodes[e], stays[e].t);
    for_each_action(nodes[e], [&](Action, const Trade& t, int c) {
      Choice choice{t, c, std::vector<double>(points)};
      for (int m = 0; m < grid.points; ++m) {
        choice.growth[static_cast<std::size_t>(m)] =
            c < 0 ? next[static_cast<std::size_t>(m)].always.log_growth(nodes[e], 0.0)
                  : expected_growth(m, nodes[e], t.d, c);
      }
      choices[e].push_back(std::move(choice));
    });
  }

  const auto dot = [&](const std::vector<double>& w, const std::vector<double>& v, std::size_t e) {
    const double *x = w.data(), *y = v.data() + e * points;
    return fixed_sum<double>(grid.points, [=](std::int64_t k) { return x[k] * y[k]; });
  };
  const Kokkos::DefaultHostExecutionSpace space;
  const auto flat = static_cast<std::size_t>(
      std::min_element(nodes.begin(), nodes.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); }) -
      nodes.begin());
  constexpr int most_iterations = 5'000;
  constexpr int patience = 1'000;
  constexpr double tolerance = 1e-9;  // log growth a bar
  double span = 0;
  for (iterations = 1; iterations <= most_iterations; ++iterations) {
    for (std::size_t e = 0; e < n; ++e) {  // dh/de, three points, second order
      const std::size_t a = e == 0 ? 0 : e - 1, b = e + 1 == n ? e : e + 1;
      const double below = nodes[e] - nodes[a], above = nodes[b] - nodes[e];
      for (std::size_t m = 0; m < points; ++m) {
        const double down = below > 0 ? (h[e * points + m] - h[a * points + m]) / below : 0.0;
        const double up = above > 0 ? (h[b * points + m] - h[e * points + m]) / above : 0.0;
        slope[e * points + m] = below == 0 ? up : above == 0 ? down : (down * above + up * below) / (below + above);
      }
    }
    Kokkos::parallel_for("vulpes::optimum::value_iteration", range(space, grid.points), [&](std::int64_t m) {
      const NextBar& b = next[static_cast<std::size_t>(m)];
      Continuation* out = continuation.data() + static_cast<std::size_t>(m) * n;
      for (std::size_t e = 0; e < n; ++e) {
        out[e].stay = dot(b.weight, h, e);
        out[e].stay_drift = dot(b.weight_a, slope, e);
        for (std::size_t k = 0; k < cases; ++k) {
          out[e].h[k] = k < 2 ? out[e].stay : dot(b.w[k], h, e);
          out[e].drift_a[k] = k < 2 ? out[e].stay_drift : dot(b.wa[k], slope, e);
          out[e].drift_b[k] = dot(b.wb[k], slope, e);
        }
      }
      for (std::size_t e = 0; e < n; ++e) {
        double best = -std::numeric_limits<double>::infinity();
        for (const Choice& c : choices[e]) {
          const double growth_now = c.growth[static_cast<std::size_t>(m)];
          const double value =
              growth_now + (c.order_case < 0
                                ? stay_value(static_cast<int>(m), nodes[e], stays[e].node, stays[e].t)
                                : trade_value(static_cast<int>(m), nodes[e], c.trade, c.order_case, stays[e]));
          best = std::max(best, value);
        }
        updated[e * points + static_cast<std::size_t>(m)] = best;
      }
    });
    // The growth lies between the least and the largest increase of any state. Where trading does not pay, positions
    // never end and keep growths of their own: what counts then are the states that a flat account can be in.
    const bool all = iterations < patience;
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (std::size_t i = all ? 0 : flat * points; i < (all ? h.size() : (flat + 1) * points); ++i) {
      least = std::min(least, updated[i] - h[i]);
      most = std::max(most, updated[i] - h[i]);
    }
    growth = 0.5 * (least + most);
    span = most - least;
    const double reference = updated[flat * points + points / 2];
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = updated[i] - reference;
    if (span < tolerance) break;
  }
  throw_if<RunError>(!(span < tolerance), "the reference policy's value iteration did not settle in " +
                                              std::to_string(most_iterations) +
                                              " iterations; check the synthetic and account settings");
  for (NextBar& b : next) {
    b.weight = b.weight_a = {};
    b.w = b.wa = b.wb = {};
  }
}

ReferencePolicy::ReferencePolicy(const io::SyntheticConfig& config, const io::AccountConfig& account,
                                 const ReferenceOptions& options, std::uint32_t seed) {
  const auto s = std::make_shared<Solution>();
  s->account = account;
  s->rules = make_account_rules(account);
  s->options = options;
  s->filter = ComponentFilter::steady_state(config);
  const bool known = options.information == ReferenceOptions::Information::component;
  const double component_variance = config.component_sd * config.component_sd;
  const double sd =
      std::sqrt(std::max(component_variance - (known ? 0.0 : s->filter.variance), 1e-6 * component_variance) + 1e-24);
  constexpr double reach = 4.2;  // standard deviations of the estimate
  s->grid.points = static_cast<int>(config.optimum_points);
  s->grid.first = -reach * sd;
  s->grid.step = 2.0 * reach * sd / (s->grid.points - 1);
  s->nodes = exposure_nodes(s->rules);

  const std::vector<double> atr = sample_atr(config, account, seed);
  s->next.resize(static_cast<std::size_t>(s->grid.points));
  const Kokkos::DefaultHostExecutionSpace space;
  Kokkos::parallel_for("vulpes::optimum::next_bar", range(space, s->grid.points), [&](std::int64_t m) {
    const Draws draws =
        make_draws(config, s->filter, known, seed, static_cast<std::uint64_t>(m), s->grid[static_cast<int>(m)]);
    s->next[static_cast<std::size_t>(m)] = next_bar(draws, atr, s->rules, s->grid);
  });
  if (!options.myopic) s->iterate();
  solution_ = s;
}

double ReferencePolicy::predicted_growth() const {
  if (solution_->options.myopic) throw std::logic_error("a myopic policy has no predicted growth; run it");
  return solution_->growth;
}
int ReferencePolicy::iterations() const { return solution_->iterations; }
const ComponentFilter& ReferencePolicy::filter() const { return solution_->filter; }

Action ReferencePolicy::act(double exposure, double estimate) const {
  const Solution& s = *solution_;
  double t;
  const int m = s.grid.locate(estimate, t);
  Solution::Trade stay;
  stay.node = s.locate(exposure, stay.t);
  Action best_action{4, 0, 0};
  double best = -std::numeric_limits<double>::infinity();
  s.for_each_action(exposure, [&](Action action, const Solution::Trade& trade, int c) {
    double value[2];
    for (int k = 0; k < 2; ++k) {
      const double now = c < 0 ? s.next[static_cast<std::size_t>(m + k)].always.log_growth(exposure, 0.0)
                               : s.expected_growth(m + k, exposure, trade.d, c);
      const double later = s.options.myopic ? 0.0
                           : c < 0          ? s.stay_value(m + k, exposure, stay.node, stay.t)
                                            : s.trade_value(m + k, exposure, trade, c, stay);
      value[k] = now + later;
    }
    const double v = value[0] + t * (value[1] - value[0]);
    if (v > best) best = v, best_action = action;
  });
  return best_action;
}

std::vector<double> ReferencePolicy::run(const Bars& bars, std::size_t begin, std::size_t end,
                                         const std::vector<double>* component, std::vector<double>* exposures) const {
  const Solution& s = *solution_;
  const bool known = s.options.information == ReferenceOptions::Information::component;
  throw_if<InputError>(known && (component == nullptr || component->size() != bars.size()),
                       "the full-information reference needs the component of every bar");
  std::vector<double> growth;
  if (exposures != nullptr) exposures->clear();
  if (end < begin + 2) return growth;
  std::size_t first = begin;
  while (first > 0 && bars.segment[first - 1] == bars.segment[begin]) --first;
  const std::vector<Bar> table = account_bars(bars.slice(first, end), s.account);

  double estimate = 0;
  const auto observe = [&](std::size_t t) {
    estimate = s.filter.next(estimate, std::log(bars.close[t] / bars.close[t - 1]));
  };
  for (std::size_t t = first + 1; t <= begin; ++t) observe(t);
  Account account = open_account(s.rules);
  growth.reserve(end - begin - 1);
  for (std::size_t t = begin; t + 1 < end; ++t) {
    const double present = account.units * bars.close[t] / account.equity;
    if (exposures != nullptr) exposures->push_back(present);
    const Action action = act(present, known ? (*component)[t] : estimate);
    const BarOutcome outcome = advance(account, s.rules, action, table[t - first], table[t + 1 - first]);
    growth.push_back(outcome.log_growth);
    if (outcome.ruined) break;
    observe(t + 1);
  }
  return growth;
}

}  // namespace vulpes::market
