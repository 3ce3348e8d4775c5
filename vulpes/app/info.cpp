// vulpes info
#include <cstdio>

#include "vulpes/agent/agent.hpp"
#include "vulpes/app/commands.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/table.hpp"
#include "vulpes/io/time_text.hpp"
#include "vulpes/market/import.hpp"
#include "vulpes/market/synthetic.hpp"
#include "vulpes/trainer/fold_trainer.hpp"

namespace vulpes::app {
namespace {

struct InfoOptions {
  std::string file;
  ConfigOptions config;
  bool estimate = false, whole_config = false;
};

bool is_toml(const std::string& path) { return path.size() > 5 && path.compare(path.size() - 5, 5, ".toml") == 0; }

void print_checkpoint(const std::string& path) {
  const io::H5Reader file(path);
  const agent::Policy p = agent::read_policy(file);
  const kernels::Network network(p.shape);
  std::printf(
      "%s: %s\n", path.c_str(),
      file.has("training/state") ? "full checkpoint (can be resumed and evaluated)" : "policy (can be evaluated)");
  std::printf("step %lld, fold %d, validation growth %.4f bp a bar\n", static_cast<long long>(p.step), p.fold,
              1e4 * p.score);
  if (p.config.data.file.empty()) {
    std::printf("trained on the synthetic market, seed %lld\n", static_cast<long long>(p.config.run.seed));
  } else {
    std::printf("trained on %s, seed %lld\n", p.config.data.file.c_str(), static_cast<long long>(p.config.run.seed));
    if (p.seen.bar_seconds > 0) {
      std::printf("bars of %g s; training and validation from %s to %s\n", p.seen.bar_seconds,
                  io::format_time(p.seen.first).c_str(), io::format_time(p.seen.last).c_str());
    }
  }
  std::printf(
      "network: state %d (%zu features), hidden %d and %d, %d residual blocks, heads %d, %d atoms on [%g, %g]; %zu "
      "parameters\n",
      p.shape.state, p.feature_names.size(), p.shape.hidden1, p.shape.hidden2, p.shape.blocks, p.shape.head_hidden,
      p.shape.atoms, p.vmin, p.vmax, network.layout.parameter_count());
  std::printf("parameter hash %s\n", agent::parameter_hash(p.parameters).c_str());
  const std::vector<std::string> changed = io::changed_settings(p.config);
  std::printf(changed.empty() ? "all settings at their defaults\n" : "settings other than the defaults:\n");
  for (const std::string& setting : changed) std::printf("  %s\n", setting.c_str());
}

/// Bars and feature columns of a run, without its features.
struct MarketSize {
  std::size_t bars;
  int columns;
};
MarketSize market_size(const io::Config& config) {
  const auto columns = [&](const market::Bars& few) { return market::compute_features(few, config.features).columns; };
  if (config.data.file.empty()) {
    return {trainer::synthetic_bars(config), columns(market::generate_synthetic(config.synthetic, {0, 0}, 0, 1))};
  }
  std::vector<std::string> ignored;
  io::ImportOptions options;
  options.duplicates = config.data.duplicates;
  const market::Bars bars =
      market::bars_from_table(io::read_bars_table(config.data.file, options), config.data.bar_seconds, ignored);
  return {bars.size(), columns(bars.slice(0, 1))};
}

void print_estimate(const io::Config& config) {
  const MarketSize market = market_size(config);
  const auto memory = trainer::estimate_memory(config, market.bars, market.columns);
  const auto line = [](const char* what, std::size_t bytes) {
    std::printf("  %-28s %12.1f MB\n", what, static_cast<double>(bytes) / 1e6);
  };
  std::printf("device memory of a fold (%zu bars, %d features):\n", market.bars, market.columns);
  line("replay with its tree", memory.replay);
  line("parameters and moments", memory.network);
  line("buffers of step and collection", memory.step);
  line("bars and features", memory.market);
  line("together", memory.total());
  std::printf("full checkpoint:\n");
  line("size", trainer::estimate_checkpoint(config, market.columns));
}

ExitCode run(const InfoOptions& o) {
  const bool toml = is_toml(o.file);
  throw_if<InputError>(toml && !o.estimate, o.file + ": a configuration; give --estimate for the memory it takes");
  const auto config = [&] {
    if (!toml && !o.file.empty()) return agent::load_policy(o.file).config;
    ConfigOptions given = o.config;
    given.file = o.file;
    return given.read();
  };
  if (o.estimate) {
    print_estimate(config());
  } else if (o.whole_config) {
    std::fputs(io::to_toml(config()).c_str(), stdout);
  } else if (!o.file.empty()) {
    print_checkpoint(o.file);
  } else {
    std::printf("%s\nhost: %s\n", version_text().c_str(), host_numerics_description().c_str());
  }
  return ExitCode::done;
}

}  // namespace

void add_info(CLI::App& app, Command& command) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* sub =
      app.add_subcommand("info", "Versions and back ends; what a checkpoint holds; memory that a configuration takes");
  sub->add_option("FILE", options->file, "a file of a run's checkpoints/ folder; with --estimate also a TOML file")
      ->check(existing_file(checkpoint_hint));
  sub->add_flag("--config", options->whole_config, "print the checkpoint's whole configuration as TOML, nothing else");
  sub->add_flag("--estimate", options->estimate, "memory and checkpoint size of a configuration");
  sub->add_option("--set", options->config.settings, "name=value for --estimate")->allow_extra_args(false);
  sub->add_option("--data", options->config.data, "bars for --estimate")->check(existing_file(bars_hint));
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace vulpes::app
