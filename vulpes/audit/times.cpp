#include "vulpes/audit/times.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "vulpes/core/timing.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::audit {
namespace {

struct Interval {
  double begin, end;
};
using Intervals = std::vector<Interval>;

/// Sorted and without overlaps.
Intervals merged(Intervals all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals out;
  for (const Interval& i : all) {
    if (!out.empty() && i.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, i.end);
    } else {
      out.push_back(i);
    }
  }
  return out;
}
double length(const Intervals& all) {
  double sum = 0;
  for (const Interval& i : all) sum += i.end - i.begin;
  return sum;
}
/// Of two merged lists.
double common(const Intervals& a, const Intervals& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    (a[i].end < b[j].end ? i : j)++;
  }
  return sum;
}

}  // namespace

StepTimes step_times(const std::vector<KernelRun>& kernels) {
  std::map<std::int64_t, std::map<std::string, Intervals>> steps;
  for (const KernelRun& k : kernels) {
    if (k.at.window == Window::step) steps[k.at.number][k.origin.part].push_back({k.begin, k.end});
  }
  struct Samples {
    std::vector<double> seconds, overlapped, kernels;
  };
  std::map<std::string, Samples> samples;
  std::vector<double> spans, busy, periods;
  double before = 0;
  std::int64_t number_before = 0;
  for (const auto& [number, parts] : steps) {
    Intervals all;
    for (const auto& [part, own] : parts) {
      Intervals others;
      for (const auto& [name, theirs] : parts) {
        if (name != part) others.insert(others.end(), theirs.begin(), theirs.end());
      }
      const Intervals mine = merged(own);
      const double seconds = length(mine);
      Samples& s = samples[part];
      s.seconds.push_back(seconds);
      s.overlapped.push_back(seconds > 0 ? common(mine, merged(others)) / seconds : 0);
      s.kernels.push_back(static_cast<double>(own.size()));
      all.insert(all.end(), own.begin(), own.end());
    }
    all = merged(std::move(all));
    spans.push_back(all.back().end - all.front().begin);
    busy.push_back(length(all));
    if (number_before > 0 && number == number_before + 1) periods.push_back(all.front().begin - before);
    before = all.front().begin;
    number_before = number;
  }
  StepTimes t;
  t.steps = static_cast<std::int64_t>(steps.size());
  t.span = median(spans);
  t.busy = median(busy);
  t.period = median(periods);
  const auto add = [&](const std::string& name) {
    const auto s = samples.find(name);
    if (s == samples.end()) return;
    t.parts.push_back({name.empty() ? "unknown" : name, median(s->second.seconds), median(s->second.overlapped),
                       median(s->second.kernels)});
  };
  for (const char* name : trainer::observed_parts) add(name);
  add("");
  return t;
}

std::string to_text(const StepTimes& t) {
  std::string text = "part of a step       busy, ms   beside another part   kernels\n";
  char line[128];
  for (const PartTime& p : t.parts) {
    std::snprintf(line, sizeof line, "%-18s %10.4f %19.0f %% %9.0f\n", p.part.c_str(), 1e3 * p.seconds,
                  100 * p.overlapped, p.kernels);
    text += line;
  }
  std::snprintf(line, sizeof line, "%-18s %10.4f   of %.4f ms from first to last kernel, medians of %lld steps\n",
                "a kernel runs", 1e3 * t.busy, 1e3 * t.span, static_cast<long long>(t.steps));
  text += line;
  if (t.period > 0) {
    std::snprintf(line, sizeof line, "%-18s %10.4f   from a step's first kernel to the next one's\n", "step",
                  1e3 * t.period);
    text += line;
  }
  return text;
}

}  // namespace vulpes::audit
