// vulpes step: exactly one training step from a saved state on a given batch, everything written (docs/step-format.md).
#include <cstdio>

#include "vulpes/agent/agent.hpp"
#include "vulpes/app/commands.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/hdf5.hpp"
#include "vulpes/trainer/devices.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::app {
namespace {

struct StepOptions {
  std::string state, out;
  ConfigOptions config;
};

/// Copies between a file's dataset and a device array; the host side is a vector in row-major order.
template <class View>
void read_array(const io::H5Reader& file, const std::string& name, const View& view) {
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view);
  file.read_into(name, host.data(), host.size());
  Kokkos::deep_copy(view, host);
}
/// A transposed buffer [item, row+] as a dataset [rows, items].
template <class View>
void write_columns(io::H5Writer& file, const std::string& name, const View& columns, int first_row, int rows, int items,
                   const std::vector<float>& add = {}) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), columns);
  std::vector<float> out(static_cast<std::size_t>(rows) * items);
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < items; ++i) {
      out[static_cast<std::size_t>(r) * items + i] =
          static_cast<float>(host(i, first_row + r)) + (add.empty() ? 0.0f : add[i]);
    }
  }
  file.write(name, out.data(), {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(items)});
}
template <class View>
void write_row(io::H5Writer& file, const std::string& name, const View& columns, int item, int rows) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), columns);
  file.write(name, &host(item, 0), {static_cast<std::uint64_t>(rows)});
}

/// Singular vectors, one dataset a matrix.
template <class Space>
void read_spectral(const io::H5Reader& file, const kernels::SpectralNorm<Space>& norm) {
  const auto strips = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.row_strips);
  const auto u = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.u);
  const auto v = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.v);
  for (std::size_t i = 0; i < strips.extent(0); ++i) {
    const auto& s = strips(i);
    const std::string& name = norm.names[s.matrix];
    if (s.begin != 0 || !file.has("spectral/u/" + name)) continue;
    file.read_into("spectral/u/" + name, u.data() + s.u, s.rows);
    file.read_into("spectral/v/" + name, v.data() + s.v, s.columns);
  }
  Kokkos::deep_copy(norm.u, u);
  Kokkos::deep_copy(norm.v, v);
}
template <class Space>
void write_spectral(io::H5Writer& file, const kernels::SpectralNorm<Space>& norm) {
  const auto strips = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.row_strips);
  const auto u = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.u);
  const auto v = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.v);
  const auto sigma = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), norm.sigma);
  for (std::size_t i = 0; i < strips.extent(0); ++i) {
    const auto& s = strips(i);
    if (s.begin != 0) continue;
    const std::string& name = norm.names[s.matrix];
    file.write("spectral/u/" + name, u.data() + s.u, {s.rows});
    file.write("spectral/v/" + name, v.data() + s.v, {s.columns});
    file.write_scalar("spectral/sigma/" + name, sigma(s.matrix));
  }
}

template <class Space>
void run_step(const Space& space, const io::Config& config, const io::H5Reader& in, const std::string& out) {
  const int width = static_cast<int>(in.read_scalar<std::int64_t>("state_width"));
  const int batch = static_cast<int>(in.size("batch/rewards"));
  throw_if<InputError>(batch % kernels::row_multiple != 0,
                       in.path() + ": batch of " + std::to_string(batch) + " rows; a multiple of 16 is needed");
  kernels::NetworkShape shape = agent::network_shape(config.network, 0);
  shape.state = width;
  const kernels::Network network(shape);
  const ParameterLayout& layout = network.layout;

  std::vector<float> online(layout.size(), 0.0f);
  agent::read_tensors(in, "parameters/online", layout, online.data());
  const trainer::Learner<Space> learner(space, shape, online, config.optimiser.spectral_trunk,
                                        config.optimiser.spectral_output);
  agent::read_tensors(in, "parameters/target", layout, learner.buffers.target);
  agent::read_tensors(in, "optimiser/first_moment", layout, learner.buffers.first_moment);
  agent::read_tensors(in, "optimiser/second_moment", layout, learner.buffers.second_moment);
  read_spectral(in, learner.spectral);
  const auto state = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), learner.state);
  state().iteration = in.read_scalar<std::uint64_t>("counters/iteration");
  state().adam_t = in.read_scalar<std::uint64_t>("counters/adam_t");
  Kokkos::deep_copy(learner.state, state);

  const trainer::StepBuffers<Space> b(space, shape, batch, 1);
  const auto input = Kokkos::create_mirror_view(Kokkos::HostSpace(), b.online.input);
  in.read_into("batch/states", input.data(), static_cast<std::uint64_t>(batch) * width);
  in.read_into("batch/next_states", input.data() + static_cast<std::size_t>(batch) * width,
               static_cast<std::uint64_t>(batch) * width);
  Kokkos::deep_copy(b.online.input, input);
  const auto given = in.read<std::uint8_t>("batch/actions");
  throw_if<InputError>(given.size() != static_cast<std::size_t>(batch) * kernels::branches,
                       in.path() + ": batch/actions must be [B, 3]");
  const auto actions = Kokkos::create_mirror_view(Kokkos::HostSpace(), b.actions);
  for (int r = 0; r < batch; ++r) {
    for (int d = 0; d < kernels::branches; ++d) {
      const std::uint8_t a = given[r * kernels::branches + d];
      throw_if<InputError>(a >= kernels::actions_of(d), in.path() + ": batch/actions[" + std::to_string(r) + ", " +
                                                            std::to_string(d) + "] is " + std::to_string(a) +
                                                            "; the branch has " +
                                                            std::to_string(kernels::actions_of(d)) + " actions");
      actions(d, r) = a;
    }
  }
  Kokkos::deep_copy(b.actions, actions);
  read_array(in, "batch/rewards", b.rewards);
  read_array(in, "batch/discounts", b.discounts);
  read_array(in, "batch/weights", b.weights);

  const double vmin = in.read_scalar<double>("support/vmin"), vmax = in.read_scalar<double>("support/vmax");
  const trainer::StepRules rules =
      trainer::make_step_rules(config, {static_cast<std::uint32_t>(config.run.seed), 1}, vmin, vmax, 1.0);
  trainer::learn(space, rules, learner, b);
  kernels::finish_step(space, b.loss, learner.state, b.records);
  space.fence("vulpes::app::step");

  // Output biases as the forward pass saw them: after the spectral norm, before the update. Biases are not projected.
  const TensorSlice& bias = layout[network.output_bias];
  const std::vector<float> online_bias(online.begin() + bias.offset, online.begin() + bias.offset + bias.size());
  std::vector<float> target_bias(bias.size());
  in.read_into("parameters/target/" + bias.name, target_bias.data(), target_bias.size());

  io::H5Writer file(out);
  const int logits = shape.logits();
  const int targets = kernels::branches * shape.atoms;
  write_columns(file, "logits/online", b.online.logits, 0, batch, logits, online_bias);
  write_columns(file, "logits/online_next", b.online.logits, batch, batch, logits, online_bias);
  write_columns(file, "logits/target_next", b.target_next.logits, 0, batch, logits, target_bias);
  write_columns(file, "q/next", b.loss.next_q, 0, batch, kernels::total_actions);
  write_columns(file, "next_action", b.loss.next_action, 0, batch, kernels::branches);
  const auto target = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), b.loss.target);
  std::vector<float> m(static_cast<std::size_t>(batch) * targets);
  for (int r = 0; r < batch; ++r) {
    for (int i = 0; i < targets; ++i)
      m[static_cast<std::size_t>(r) * targets + i] = target(rules.per_branch ? i : i % shape.atoms, r);
  }
  file.write("target", m.data(),
             {static_cast<std::uint64_t>(batch), kernels::branches, static_cast<std::uint64_t>(shape.atoms)});
  write_row(file, "q/chosen", b.loss.rows_out, kernels::q_out, batch);
  write_row(file, "loss/rows", b.loss.rows_out, kernels::loss_out, batch);
  write_row(file, "loss/c51", b.loss.rows_out, kernels::c51_out, batch);
  write_row(file, "loss/mse", b.loss.rows_out, kernels::mse_out, batch);
  write_row(file, "loss/kl", b.loss.rows_out, kernels::kl_out, batch);
  write_row(file, "delta", b.loss.rows_out, kernels::delta_out, batch);
  write_row(file, "clipped", b.loss.rows_out, kernels::clipped_out, batch);
  write_columns(file, "logit_gradient", b.loss.logit_gradient, 0, batch, logits);
  agent::write_tensors(file, "gradient", layout, learner.buffers.gradient);
  const auto record = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), b.records);
  const auto after = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), learner.state);
  file.write_scalar("loss/total", record(0, kernels::loss_out));
  file.write_scalar("gradient_norm", record(0, kernels::gradient_norm_out));
  file.write_scalar("clip", record(0, kernels::clip_out));
  file.write_scalar<std::uint8_t>("skipped", static_cast<std::uint8_t>(record(0, kernels::skip_out)));
  write_spectral(file, learner.spectral);
  agent::write_tensors(file, "parameters/online", layout, learner.buffers.parameters);
  agent::write_tensors(file, "parameters/target", layout, learner.buffers.target);
  agent::write_tensors(file, "optimiser/first_moment", layout, learner.buffers.first_moment);
  agent::write_tensors(file, "optimiser/second_moment", layout, learner.buffers.second_moment);
  file.write_scalar("counters/iteration", after().iteration);
  file.write_scalar("counters/adam_t", after().adam_t);
  file.finish();
}

ExitCode run(const StepOptions& o) {
  const io::H5Reader in(o.state, io::H5Reader::Trust::any);
  io::Config config;
  if (o.config.file.empty() && in.has("config")) {
    config = io::config_from_toml(in.read_string("config"), o.state);
    for (const std::string& s : o.config.settings) io::apply_setting(config, s);
    io::check(config);
  } else {
    config = o.config.read();
  }
  trainer::on_device(config.run.device, [&](const auto& space) { run_step(space, config, in, o.out); });
  std::printf("%s written\n", o.out.c_str());
  return ExitCode::done;
}

}  // namespace

void add_step(CLI::App& app, Command& command) {
  auto options = std::make_shared<StepOptions>();
  CLI::App* sub = app.add_subcommand(
      "step", "Run one training step on a given batch and write every intermediate (docs/step-format.md)");
  sub->add_option("--state", options->state, "HDF5 file with parameters and batch")
      ->required()
      ->check(CLI::ExistingFile);
  sub->add_option("--out", options->out, "HDF5 file to write")->required();
  sub->add_option("--config", options->config.file, "TOML file; default: the state file's own 'config'")
      ->check(CLI::ExistingFile);
  sub->add_option("--set", options->config.settings, "name=value")->allow_extra_args(false);
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace vulpes::app
