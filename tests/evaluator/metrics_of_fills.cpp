// Reads accounts as text and prints their metrics, one JSON object a line, for metrics_reference.py.
//
//   account <bars a year>
//   walk <equity at its start>
//   bar <equity> <exposure> <units filled> <fill price> <fee>
#include <cstdio>
#include <iostream>
#include <string>

#include "vulpes/evaluator/stitch.hpp"

namespace {

using vulpes::evaluator::WalkResult;

void print(const std::vector<WalkResult>& walks, double bars_a_year) {
  const char* separator = "{";
  for (const auto& [name, value] : performance_metrics(vulpes::evaluator::stitch(walks, bars_a_year))) {
    std::printf("%s\"%s\": ", separator, name.c_str());
    value ? std::printf("%.17g", *value) : std::printf("null");
    separator = ", ";
  }
  std::printf("}\n");
}

}  // namespace

int main() {
  std::vector<WalkResult> walks;
  double bars_a_year = 0;
  for (std::string word; std::cin >> word;) {
    if (word == "account") {
      if (!walks.empty()) print(walks, bars_a_year);
      walks.clear();
      std::cin >> bars_a_year;
    } else if (word == "walk") {
      walks.emplace_back();
      std::cin >> walks.back().start_equity;
    } else {
      vulpes::kernels::BacktestRecord r{};
      std::cin >> r.equity >> r.exposure >> r.fill_units >> r.fill_price >> r.fee;
      walks.back().records.push_back(r);
    }
    if (!std::cin) {
      std::fprintf(stderr, "metrics_of_fills: cannot read what follows '%s'\n", word.c_str());
      return 2;
    }
  }
  print(walks, bars_a_year);
  return 0;
}
