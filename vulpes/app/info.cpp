// vulpes info
#include <cstdio>

#include "vulpes/agent/agent.hpp"
#include "vulpes/app/commands.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/trainer/fold_trainer.hpp"

namespace vulpes::app {
namespace {

struct InfoOptions {
  std::string checkpoint;
  ConfigOptions config;
  bool estimate = false;
};

void print_checkpoint(const std::string& path) {
  const io::H5Reader file(path);
  const agent::Policy p = agent::read_policy(file);
  const kernels::Network network(p.shape);
  std::printf(
      "%s: %s\n", path.c_str(),
      file.has("training/state") ? "full checkpoint (can be resumed and evaluated)" : "policy (can be evaluated)");
  std::printf("step %lld, fold %d, validation growth %.4f bp a bar\n", static_cast<long long>(p.step), p.fold,
              1e4 * p.score);
  std::printf(
      "network: state %d, hidden %d and %d, %d residual blocks, heads %d, %d atoms on [%g, %g]; %zu parameters\n",
      p.shape.state, p.shape.hidden1, p.shape.hidden2, p.shape.blocks, p.shape.head_hidden, p.shape.atoms, p.vmin,
      p.vmax, network.layout.parameter_count());
  std::printf("parameter hash %s\n", agent::parameter_hash(p.parameters).c_str());
  std::printf("\n%s", io::to_toml(p.config).c_str());
}

void print_estimate(const io::Config& config) {
  // Feature columns follow from the configuration alone; extra columns of a file come on top.
  const trainer::Dataset data = trainer::load_dataset(config);
  const auto memory = trainer::estimate_memory(config, data.bars.size(), data.features.columns);
  const auto line = [](const char* what, std::size_t bytes) {
    std::printf("  %-28s %12.1f MB\n", what, static_cast<double>(bytes) / 1e6);
  };
  std::printf("device memory of a fold (%zu bars, %d features):\n", data.bars.size(), data.features.columns);
  line("replay with its tree", memory.replay);
  line("parameters and moments", memory.network);
  line("buffers of step and collection", memory.step);
  line("bars and features", memory.market);
  line("together", memory.total());
  std::printf("full checkpoint:\n");
  line("size", trainer::estimate_checkpoint(config, data.features.columns));
}

}  // namespace

void add_info(CLI::App& app, Command& command) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* sub =
      app.add_subcommand("info", "Versions and back ends; what a checkpoint holds; memory that a configuration takes");
  sub->add_option("CHECKPOINT", options->checkpoint, "a file of a run's checkpoints/ folder")->check(CLI::ExistingFile);
  sub->add_flag("--estimate", options->estimate, "memory and checkpoint size of a configuration");
  sub->add_option("--config", options->config.file, "TOML file for --estimate")->check(CLI::ExistingFile);
  sub->add_option("--set", options->config.settings, "name=value for --estimate")->allow_extra_args(false);
  sub->add_option("--data", options->config.data, "bars for --estimate");
  sub->callback([options, &command] {
    command = [options] {
      if (options->estimate) {
        print_estimate(options->checkpoint.empty() ? options->config.read()
                                                   : agent::load_policy(options->checkpoint).config);
      } else if (!options->checkpoint.empty()) {
        print_checkpoint(options->checkpoint);
      } else {
        std::printf("%s\nhost: %s\n", version_text().c_str(), host_numerics_description().c_str());
      }
      return ExitCode::done;
    };
  });
}

}  // namespace vulpes::app
