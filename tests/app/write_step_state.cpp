// Writes a random state for `vulpes step`, every part on: write_step_state FILE batch|replay.
#include <cmath>
#include <cstdio>

#include "vulpes/agent/agent.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/kernels/replay_rows.hpp"

namespace {

using namespace vulpes;

constexpr int batch = 48, width = 24;

io::Config every_part() {
  io::Config config;
  config.network = {32, 16, 1, 8, 11};
  config.train.batch = batch;
  config.optimiser.spectral_trunk = 2;
  config.optimiser.spectral_output = 3;
  config.agent.warmup_steps = 5;
  config.agent.blend_steps = 10;
  config.agent.n_step = 2;
  config.agent.scale_trunk_gradient = true;
  config.network.survival = 0.5;
  config.reward.goal_bonus = 0.5;
  config.hindsight.share = 0.5;
  config.hindsight.horizon = 3;
  config.cql.weight = 0.1;
  config.auxiliary.weight = 0.1;
  config.diversity.weight = 0.1;
  config.causal.every = 1;
  config.causal.rows = 16;
  config.pruning.sparsity = 0.5;
  config.pruning.every = 1;
  config.guard.spike_factor = 10;
  config.guard.patience = 2;
  return config;
}

void write_state(const std::string& path, bool drawn) {
  constexpr RandomKey key{11, 1};
  const io::Config config = every_part();
  kernels::NetworkShape shape = agent::network_shape(config.network, 0);
  shape.state = width;
  const kernels::Network network(shape);

  std::uint32_t words = 0;
  const auto uniform = [&] { return uniform_float(random_words(key, Purpose::test, 0, words++)[0]); };
  const auto values = [&](std::size_t count, float low, float high) {
    std::vector<float> v(count);
    for (float& x : v) x = low + (high - low) * uniform();
    return v;
  };
  const std::size_t size = network.layout.size();
  io::H5Writer file(path);
  file.write_string("config", io::to_toml(config));
  file.write_scalar<std::int64_t>("state_width", width);
  agent::write_tensors(file, "parameters/online", network.layout, agent::initial_parameters(network, key).data());
  agent::write_tensors(file, "parameters/target", network.layout, agent::initial_parameters(network, {12, 1}).data());
  agent::write_tensors(file, "optimiser/first_moment", network.layout, values(size, -0.01f, 0.01f).data());
  agent::write_tensors(file, "optimiser/second_moment", network.layout, values(size, 1e-6f, 1e-4f).data());
  file.write_scalar<std::uint64_t>("counters/iteration", 10);
  file.write_scalar<std::uint64_t>("counters/adam_t", 9);
  file.write_scalar("support/vmin", -2.0);
  file.write_scalar("support/vmax", 3.0);
  file.write_scalar("market/return_sd", 0.01);
  std::vector<std::int32_t> groups(width);
  for (int i = 0; i < width; ++i) groups[i] = i % 4;
  file.write("causal/groups", groups);

  const auto actions = [&](int rows) {
    std::vector<std::uint8_t> a;
    for (int r = 0; r < rows; ++r) {
      for (int d = 0; d < kernels::branches; ++d) {
        a.push_back(static_cast<std::uint8_t>(uniform() * static_cast<float>(kernels::actions_of(d))));
      }
    }
    return a;
  };
  if (!drawn) {
    file.write("batch/states", values(batch * width, -1, 1).data(), {batch, width});
    file.write("batch/next_states", values(batch * width, -1, 1).data(), {batch, width});
    file.write("batch/actions", actions(batch).data(), {batch, kernels::branches});
    file.write("batch/rewards", values(batch, -1, 1));
    file.write("batch/discounts", values(batch, 0, 1));
    file.write("batch/weights", values(batch, 0.1f, 1));
    file.write("batch/next_returns", values(batch, -0.02f, 0.02f));
    file.write("batch/exposures", values(batch, -1, 1));
    return file.finish();
  }
  // A full ring whose accounts live through episodes of five bars.
  constexpr int slots = 20, envs = 4, rows = slots * envs, episode = 5, bars = 64, features = width - 5;
  std::vector<std::uint32_t> bar(rows), leaves(rows);
  std::vector<std::uint8_t> flags(rows);
  std::vector<std::uint16_t> offset(rows), held(2 * rows);
  const std::vector<float> growth = values((slots + 1) * envs, -0.02f, 0.02f);
  std::vector<float> before(4 * rows), after(4 * rows);
  for (int i = 0; i < rows; ++i) {
    const int slot = i / envs;
    bar[i] = static_cast<std::uint32_t>(2 * slot);
    offset[i] = static_cast<std::uint16_t>(slot % episode);
    flags[i] = offset[i] == episode - 1 ? kernels::ReplayRow::truncated : 0;
    held[2 * i] = offset[i];
    held[2 * i + 1] = static_cast<std::uint16_t>(offset[i] + 1);
    leaves[i] = slot + 2 <= slots || flags[i] ? 1000u + 1000u * static_cast<std::uint32_t>(i) : 0u;
    before[4 * i + 3] = offset[i] == 0 ? 0.0f : growth[i];
    after[4 * i] = 0.5f;
    after[4 * i + 3] = growth[i + envs];
  }
  file.write_scalar<std::uint64_t>("replay/slots_written", slots);
  file.write("replay/bar", bar.data(), {slots, envs});
  file.write("replay/leaves", leaves.data(), {slots, envs});
  file.write("replay/flags", flags.data(), {slots, envs});
  file.write("replay/episode_offset", offset.data(), {slots, envs});
  file.write("replay/bars_held", held.data(), {slots, envs, 2});
  file.write("replay/action", actions(rows).data(), {slots, envs, kernels::branches});
  file.write("replay/goal", values(rows, 0, 0.03f).data(), {slots, envs});
  file.write("replay/before", before.data(), {slots, envs, 4});
  file.write("replay/after", after.data(), {slots, envs, 4});
  file.write("market/features", values(bars * features, -1, 1).data(), {bars, features});
  file.write("market/close", std::vector<double>(bars, 100.0));
  file.write_scalar("market/reward_scale", 30.0);
  file.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const vulpes::Runtime runtime(argv);
  const std::string kind = argc == 3 ? argv[2] : "";
  if (kind != "batch" && kind != "replay") {
    std::fprintf(stderr, "usage: write_step_state FILE batch|replay\n");
    return 2;
  }
  write_state(argv[1], kind == "replay");
  return 0;
}
