#include "vulpes/trainer/test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "vulpes/core/transfer.hpp"
#include "vulpes/evaluator/metrics.hpp"
#include "vulpes/evaluator/stitch.hpp"
#include "vulpes/io/time_text.hpp"
#include "vulpes/trainer/devices.hpp"

namespace vulpes::trainer {
namespace {

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

/// Backtests one policy on the walks of its fold.
TestRun backtest_policy(const Dataset& data, const agent::Policy& policy, const std::vector<evaluator::Walk>& walks,
                        bool keep_states) {
  return on_device(policy.config.run.device, [&](const auto& space) {
    using Space = std::decay_t<decltype(space)>;
    kernels::Network network(policy.shape);
    network.forward = precision_of(policy.config.gemm.forward);
    const Vector<float, Space> parameters = upload(space, "vulpes::test::parameters", policy.parameters);
    const kernels::MarketTable<Space> table(space, data.account_bars, policy.normaliser.apply(data.features),
                                            data.features.columns, data.bars.segment);
    const evaluator::Actor<Space> actor{network,
                                        kernels::Support<float>::make(policy.vmin, policy.vmax, policy.shape.atoms),
                                        parameters, kernels::make_goal_rules(policy.config)};
    TestRun run;
    run.walks = evaluator::backtest(space, actor, table, market::make_account_rules(policy.config.account),
                                    static_cast<std::uint32_t>(policy.config.collect.window), walks, keep_states);
    for (const evaluator::WalkResult& w : run.walks) {
      for (const kernels::BacktestRecord& r : w.records) run.growths.push_back(r.log_growth);
      // A ruined account earns nothing on the bars that it does not see, as everybody else is compared on them.
      run.growths.insert(run.growths.end(), (w.walk.end - w.walk.begin - 1) - w.records.size(), 0.0);
    }
    return run;
  });
}

/// Share of the goal windows (`window` decisions each, begun anew as the agent saw them) in which the log growth
/// reached `goal`; nothing where no window is whole.
std::optional<double> goals_reached(const std::vector<evaluator::WalkResult>& walks, std::size_t window, double goal) {
  std::size_t windows = 0, reached = 0;
  for (const evaluator::WalkResult& w : walks) {
    for (std::size_t begin = 0; begin + window <= w.records.size(); begin += window) {
      double growth = 0, highest = 0;
      for (std::size_t i = begin; i < begin + window; ++i) {
        growth += w.records[i].log_growth;
        highest = std::max(highest, growth);
      }
      ++windows;
      reached += highest >= goal ? 1 : 0;
    }
  }
  return windows > 0 ? std::optional<double>(static_cast<double>(reached) / static_cast<double>(windows))
                     : std::nullopt;
}

/// What a policy of the comparison is, in the order of the table.
struct PolicyText {
  const char* name;
  const char* meaning;
  bool upper_bound;  ///< nothing does better (up to its own noise) on what it knows
};
constexpr const char* price_only = "reference (price only)";
constexpr const char* full_information = "full information";
const PolicyText policy_texts[] = {
    {price_only, "best possible from prices alone", true},
    {full_information, "best possible if the market's hidden state were known", true},
    {market::baseline_name(market::Baseline::buy_and_hold), "fully invested from the first bar on", false},
    {market::baseline_name(market::Baseline::z_score), "bets on a return to the 20-bar mean when 2 deviations off",
     false},
    {market::baseline_name(market::Baseline::flat), "no trade", false},
};

}  // namespace

TestReport run_test(const io::Config& config, const Dataset& data, const std::vector<agent::Policy>& policies,
                    bool keep_states) {
  TestReport report;
  std::vector<evaluator::Walk> all_walks;
  for (const agent::Policy& policy : policies) {
    std::vector<evaluator::Walk> walks;
    for (const Range& range : data.folds[policy.fold - 1].test) {
      for (const evaluator::Walk& w : walks_of(data, range, 0)) walks.push_back(w);
    }
    TestRun run = backtest_policy(data, policy, walks, keep_states);
    report.agent.growths.insert(report.agent.growths.end(), run.growths.begin(), run.growths.end());
    for (auto& w : run.walks) report.agent.walks.push_back(std::move(w));
    all_walks.insert(all_walks.end(), walks.begin(), walks.end());
  }

  const auto compare = [&](const std::string& name, const auto& run_walk) {
    Comparison c{name, {}, std::nullopt};
    for (const evaluator::Walk& w : all_walks) {
      std::vector<double> growths = run_walk(w);
      growths.resize(w.end - w.begin - 1, 0.0);
      c.growths.insert(c.growths.end(), growths.begin(), growths.end());
    }
    // A share of a growth that is itself uncertain (buy-and-hold on a market without drift) means nothing.
    const auto ratio = market::growth_ratio(report.agent.growths, c.growths);
    if (ratio && ratio->standard_error < 0.5) c.agent_ratio = ratio;
    report.comparisons.push_back(std::move(c));
  };
  if (!data.component.empty()) {
    const market::ReferencePolicy reference(config.synthetic, config.account);
    report.predicted_reference_growth = reference.predicted_growth();
    compare(price_only, [&](const evaluator::Walk& w) { return reference.run(data.bars, w.begin, w.end); });
    market::ReferenceOptions full;
    full.information = market::ReferenceOptions::Information::component;
    const market::ReferencePolicy informed(config.synthetic, config.account, full);
    compare(full_information,
            [&](const evaluator::Walk& w) { return informed.run(data.bars, w.begin, w.end, &data.component); });
  }
  for (const market::Baseline b : {market::Baseline::buy_and_hold, market::Baseline::z_score, market::Baseline::flat}) {
    compare(market::baseline_name(b), [&](const evaluator::Walk& w) {
      return market::run_baseline(b, data.bars, config.account, w.begin, w.end);
    });
  }
  return report;
}

nlohmann::json summarise(const TestReport& report, const Dataset& data, const io::Config& config) {
  nlohmann::json test;
  test["bars"] = report.agent.growths.size();
  test["growth_per_bar"] = mean(report.agent.growths);
  test["bars_a_year"] = data.bars_a_year;
  std::vector<double> histogram(market::exposure_levels, 0.0);
  const evaluator::Performance performance = evaluator::stitch(report.agent.walks, data.bars_a_year);
  for (const double exposure : performance.exposure) {
    const double level = std::round((exposure + 1.0) * 4.0);
    histogram[static_cast<std::size_t>(std::clamp(level, 0.0, market::exposure_levels - 1.0))] +=
        1.0 / performance.exposure.size();
  }
  for (const auto& [name, value] : evaluator::performance_metrics(performance)) {
    if (value) test["metrics"][name] = *value;
  }
  test["exposure_histogram"] = histogram;
  if (kernels::make_goal_rules(config).on) {
    const auto share =
        goals_reached(report.agent.walks, static_cast<std::size_t>(config.collect.window), config.goal.growth);
    if (share) test["goals_reached"] = *share;
  }
  for (const Comparison& c : report.comparisons) {
    nlohmann::json& j = test["comparisons"][c.name];
    j["growth_per_bar"] = mean(c.growths);
    if (c.agent_ratio) {
      j["agent_share"] = c.agent_ratio->ratio;
      j["agent_share_standard_error"] = c.agent_ratio->standard_error;
    }
  }
  if (report.predicted_reference_growth && report.comparisons.front().agent_ratio) {
    test["optimal_fraction"] = report.comparisons.front().agent_ratio->ratio;
    test["optimal_fraction_standard_error"] = report.comparisons.front().agent_ratio->standard_error;
    test["reference_predicted_growth_per_bar"] = *report.predicted_reference_growth;
  }
  return test;
}

nlohmann::json fold_ranges(const Dataset& data, const Dataset::FoldRanges& fold) {
  const auto range = [&](Range r) {
    nlohmann::json j;
    j["bars"] = r.size();
    if (r.size() > 0) {
      j["first"] = io::format_time(data.bars.time[r.begin]);
      j["last"] = io::format_time(data.bars.time[r.end - 1]);
    }
    return j;
  };
  nlohmann::json ranges;
  ranges["train"] = range(fold.train);
  ranges["validation"] = range(fold.validation);
  ranges["test"] = nlohmann::json::array();
  for (const Range& r : fold.test) ranges["test"].push_back(range(r));
  return ranges;
}

std::string test_table(const nlohmann::json& test) {
  std::string table = "Test on " + std::to_string(test.at("bars").get<std::size_t>()) +
                      " bars; mean log growth a bar after costs, in basis points (bp, 0.01 %):\n\n"
                      "  policy                      growth   agent's share\n";
  bool shares = false;
  const auto row = [&](const char* name, const nlohmann::json& growth, const char* share, const char* meaning) {
    char line[200];
    std::snprintf(line, sizeof line, "  %-24s %9.3f   %-16s  %s\n", name, 1e4 * growth.get<double>(), share, meaning);
    table += line;
  };
  row("agent", test.at("growth_per_bar"), "", "the trained policy");
  for (const PolicyText& p : policy_texts) {
    if (!test.at("comparisons").contains(p.name)) continue;
    const nlohmann::json& j = test.at("comparisons").at(p.name);
    char share[40] = "";
    if (p.upper_bound && j.contains("agent_share")) {
      std::snprintf(share, sizeof share, "%.1f %% +- %.1f", 100 * j.at("agent_share").get<double>(),
                    100 * j.at("agent_share_standard_error").get<double>());
      shares = true;
    }
    row(p.name, j.at("growth_per_bar"), share, p.meaning);
  }
  if (shares) table += "\nAgent's share: its growth over that of the best possible policy, +- one standard error.\n";
  return table;
}

}  // namespace vulpes::trainer
