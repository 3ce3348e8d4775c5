// The test of a trained policy: its backtest on the test ranges beside reference and baselines.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "vulpes/agent/agent.hpp"
#include "vulpes/evaluator/backtest.hpp"
#include "vulpes/market/baselines.hpp"
#include "vulpes/market/optimum.hpp"
#include "vulpes/trainer/dataset.hpp"

namespace vulpes::trainer {

/// Per-bar log growths of one policy over the test ranges, one after the other, and what it did.
struct TestRun {
  std::vector<evaluator::WalkResult> walks;
  std::vector<double> growths;
};

/// A policy that the agent is compared with, on the same bars.
struct Comparison {
  std::string name;
  std::vector<double> growths;
  std::optional<market::RatioEstimate> agent_ratio;  ///< mean growth of the agent over this one's
};

struct TestReport {
  TestRun agent;
  std::vector<Comparison> comparisons;
  std::optional<double> predicted_reference_growth;
};

/// Backtests `policies` (one a fold; fold k of the dataset with policies[k]) on their test ranges, each on its
/// run.device, and the baselines on the same bars; on synthetic data also the reference policies. `keep_states` as in
/// evaluator::backtest.
TestReport run_test(const io::Config& config, const Dataset& data, const std::vector<agent::Policy>& policies,
                    bool keep_states = false);

/// Everything that summary.json says of the test.
nlohmann::json summarise(const TestReport& report, const Dataset& data, const io::Config& config);

/// First and last bar (ISO 8601) and number of bars of a fold's ranges: `train`, `validation` and a list `test`.
nlohmann::json fold_ranges(const Dataset& data, const Dataset::FoldRanges& fold);

/// The result for a reader, from what `summarise` gave: each policy's growth a bar and what it is, and the agent's
/// share of the growth of those that are an upper bound.
std::string test_table(const nlohmann::json& test);

}  // namespace vulpes::trainer
