// Writes a random state and batch for `vulpes step`: write_step_state FILE.
#include <cmath>
#include <cstdio>

#include "vulpes/agent/agent.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"

namespace {

using namespace vulpes;

void write_state(const std::string& path) {
  constexpr RandomKey key{11, 1};
  constexpr int batch = 48, width = 24;
  io::Config config;
  config.network = {32, 16, 1, 8, 11};
  config.train.batch = batch;
  config.optimiser.spectral_trunk = 2;
  config.optimiser.spectral_output = 3;
  config.agent.warmup_steps = 5;
  config.agent.blend_steps = 10;
  kernels::NetworkShape shape = agent::network_shape(config.network, 0);
  shape.state = width;
  const kernels::Network network(shape);

  std::uint32_t drawn = 0;
  const auto uniform = [&] { return uniform_float(random_words(key, Purpose::test, 0, drawn++)[0]); };
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
  file.write("batch/states", values(batch * width, -1, 1).data(), {batch, width});
  file.write("batch/next_states", values(batch * width, -1, 1).data(), {batch, width});
  std::vector<std::uint8_t> actions;
  for (int r = 0; r < batch; ++r) {
    for (int d = 0; d < kernels::branches; ++d) {
      actions.push_back(static_cast<std::uint8_t>(uniform() * static_cast<float>(kernels::actions_of(d))));
    }
  }
  file.write("batch/actions", actions.data(), {batch, kernels::branches});
  file.write("batch/rewards", values(batch, -1, 1));
  file.write("batch/discounts", values(batch, 0, 1));
  file.write("batch/weights", values(batch, 0.1f, 1));
  file.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const vulpes::Runtime runtime(argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_step_state FILE\n");
    return 2;
  }
  write_state(argv[1]);
  return 0;
}
