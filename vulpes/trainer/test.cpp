#include "vulpes/trainer/test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "vulpes/core/transfer.hpp"
#include "vulpes/evaluator/metrics.hpp"
#include "vulpes/evaluator/stitch.hpp"
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
    const kernels::Network network(policy.shape);
    const Vector<float, Space> parameters = upload(space, "vulpes::test::parameters", policy.parameters);
    const kernels::MarketTable<Space> table(space, data.account_bars, policy.normaliser.apply(data.features),
                                            data.features.columns, data.bars.segment);
    const evaluator::Actor<Space> actor{
        network, kernels::Support<float>::make(policy.vmin, policy.vmax, policy.shape.atoms), parameters};
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
  if (data.synthetic) {
    const market::ReferencePolicy reference(config.synthetic, config.account);
    report.predicted_reference_growth = reference.predicted_growth();
    compare("reference (price only)",
            [&](const evaluator::Walk& w) { return reference.run(data.bars, w.begin, w.end); });
    market::ReferenceOptions full;
    full.information = market::ReferenceOptions::Information::component;
    const market::ReferencePolicy informed(config.synthetic, config.account, full);
    compare("full information",
            [&](const evaluator::Walk& w) { return informed.run(data.bars, w.begin, w.end, &data.component); });
  }
  for (const market::Baseline b : {market::Baseline::buy_and_hold, market::Baseline::z_score, market::Baseline::flat}) {
    compare(market::baseline_name(b), [&](const evaluator::Walk& w) {
      return market::run_baseline(b, data.bars, config.account, w.begin, w.end);
    });
  }
  return report;
}

nlohmann::json summarise(const TestReport& report, const Dataset& data, const io::Config&) {
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
  for (const Comparison& c : report.comparisons) {
    nlohmann::json& j = test["comparisons"][c.name];
    j["growth_per_bar"] = mean(c.growths);
    if (c.agent_ratio) {
      j["agent_share"] = c.agent_ratio->ratio;
      j["agent_share_standard_error"] = c.agent_ratio->standard_error;
    }
  }
  if (data.synthetic && report.comparisons.front().agent_ratio) {
    test["optimal_fraction"] = report.comparisons.front().agent_ratio->ratio;
    test["optimal_fraction_standard_error"] = report.comparisons.front().agent_ratio->standard_error;
    test["reference_predicted_growth_per_bar"] = *report.predicted_reference_growth;
  }
  return test;
}

std::string comparison_table(const TestReport& report) {
  std::string table;
  char line[160];
  const auto row = [&](const std::string& name, double growth, const std::optional<market::RatioEstimate>& ratio) {
    if (ratio) {
      std::snprintf(line, sizeof(line), "  %-24s %8.3f bp a bar   agent reaches %6.1f %% +- %.1f\n", name.c_str(),
                    1e4 * growth, 100 * ratio->ratio, 100 * ratio->standard_error);
    } else {
      std::snprintf(line, sizeof(line), "  %-24s %8.3f bp a bar\n", name.c_str(), 1e4 * growth);
    }
    table += line;
  };
  row("agent", mean(report.agent.growths), std::nullopt);
  for (const Comparison& c : report.comparisons) row(c.name, mean(c.growths), c.agent_ratio);
  return table;
}

}  // namespace vulpes::trainer
