#include "vulpes/trainer/step_file.hpp"

#include <algorithm>
#include <cmath>

#include "vulpes/agent/agent.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/trainer/devices.hpp"
#include "vulpes/trainer/fold_trainer.hpp"

namespace vulpes::trainer {
namespace {

constexpr const char* help = "; docs/step-format.md says what 'vulpes step' reads";

// --- Reading
// -----------------------------------------------------------------------------------------------------------

std::string text(const io::Extents& extents) {
  std::string all;
  for (const std::uint64_t e : extents) all += (all.empty() ? "" : ", ") + std::to_string(e);
  return "[" + all + "]";
}

/// A state file whose datasets are checked as they are read.
class StateFile {
 public:
  explicit StateFile(const io::H5Reader& reader) : file(reader) {}

  [[noreturn]] void refuse(const std::string& message) const { throw InputError(file.path() + ": " + message + help); }
  void require(bool holds, const std::string& message) const {
    if (!holds) refuse(message);
  }
  bool has(const std::string& name) const { return file.has(name); }
  io::Extents extents(const std::string& name) const {
    require(has(name), "no '" + name + "' in it");
    return file.extents(name);
  }

  /// A dataset of type T and one of these shapes, some of whose numbers are finite.
  template <class T>
  std::vector<T> read(const std::string& name, const io::Extents& shape, const io::Extents& or_shape = {}) const {
    const io::Extents found = extents(name);
    require(found == shape || (!or_shape.empty() && found == or_shape),
            "'" + name + "' is " + text(found) + ", not " + text(shape));
    std::vector<T> values = file.read<T>(name);
    if constexpr (std::is_floating_point_v<T>) {
      const bool any = std::any_of(values.begin(), values.end(), [](T v) { return std::isfinite(v); });
      require(any || values.empty(), "'" + name + "' has no finite number");
    }
    return values;
  }
  template <class T>
  T scalar(const std::string& name) const {
    return read<T>(name, {}, {1}).front();
  }
  template <class T>
  T scalar(const std::string& name, T otherwise) const {
    return has(name) ? scalar<T>(name) : otherwise;
  }
  template <class View>
  void read_into(const View& to, const std::string& name) const {
    const auto values = read<typename View::non_const_value_type>(name, {to.extent(0)});
    Kokkos::deep_copy(to, host_view(values));
  }

  /// Tensors `<group>/<tensor>` as a flat buffer.
  std::vector<float> tensors(const std::string& group, const ParameterLayout& layout) const {
    std::vector<float> buffer(layout.size(), 0.0f);
    for (const TensorSlice& t : layout.tensors()) {
      const io::Extents matrix{static_cast<std::uint64_t>(t.rows), static_cast<std::uint64_t>(t.columns)};
      const io::Extents shape = t.is_weight ? matrix : io::Extents{matrix[1]};
      const auto values = read<float>(group + "/" + t.name, shape, matrix);
      std::copy(values.begin(), values.end(), buffer.begin() + static_cast<std::ptrdiff_t>(t.offset));
    }
    return buffer;
  }
  /// Masks `<group>/<tensor>` (1: pruned) of the weight matrices as bits; those that are absent prune nothing.
  std::vector<std::uint32_t> mask(const std::string& group, const ParameterLayout& layout) const {
    std::vector<std::uint32_t> bits(layout.size() / kernels::mask_bits, 0u);
    for (const TensorSlice& t : layout.tensors()) {
      const std::string name = group + "/" + t.name;
      if (!t.is_weight || !has(name)) continue;
      const auto pruned =
          read<std::uint8_t>(name, {static_cast<std::uint64_t>(t.rows), static_cast<std::uint64_t>(t.columns)});
      for (std::size_t i = 0; i < pruned.size(); ++i) {
        if (pruned[i]) bits[(t.offset + i) / kernels::mask_bits] |= 1u << ((t.offset + i) % kernels::mask_bits);
      }
    }
    return bits;
  }

 private:
  const io::H5Reader& file;
};

/// Calls `v(name, field)` for every counter that a file may hold.
template <class Counters, class Visitor>
void visit_counters(Counters& c, const Visitor& v) {
  v("iteration", c.iteration);
  v("adam_t", c.adam_t);
  v("skipped", c.skipped);
  v("snapshot_adam_t", c.snapshot_adam_t);
  v("fault_iteration", c.fault_iteration);
  v("fault_norm", c.fault_norm);
  v("norm_mean", c.norm_mean);
  v("rate_multiplier", c.rate_multiplier);
  v("auxiliary_multiplier", c.auxiliary_multiplier);
  v("skips_in_a_row", c.skips_in_a_row);
  v("rollbacks", c.rollbacks);
  v("stopped", c.stopped);
}

kernels::StepCounters read_counters(const StateFile& in) {
  kernels::StepCounters c;
  for (const char* name : {"counters/iteration", "counters/adam_t"}) in.extents(name);
  c.snapshot_adam_t = in.scalar<std::uint64_t>("counters/adam_t");
  visit_counters(c, [&](const char* name, auto& field) { field = in.scalar(std::string("counters/") + name, field); });
  c.fault = static_cast<kernels::Fault>(in.scalar<std::uint32_t>("counters/fault", 0));
  return c;
}

/// Calls `v(matrix, strip)` for every matrix that has a bound.
template <class Space, class Visitor>
void visit_bounded(const kernels::SpectralNorm<Space>& norm, const Visitor& v) {
  for (const kernels::SpectralStrip& s : download(norm.row_strips)) {
    if (s.begin == 0) v(norm.names[s.matrix], s);
  }
}

/// Singular vectors `<group>/u/<matrix>` and `<group>/v/<matrix>` over those in `half`, where the file has them.
template <class Space>
void read_vectors(const StateFile& in, const std::string& group, const kernels::SpectralNorm<Space>& norm,
                  std::vector<float>& half) {
  visit_bounded(norm, [&](const std::string& name, const kernels::SpectralStrip& s) {
    if (!in.has(group + "/u/" + name)) return;
    const auto u = in.read<float>(group + "/u/" + name, {s.rows});
    const auto v = in.read<float>(group + "/v/" + name, {s.columns});
    std::copy(u.begin(), u.end(), half.begin() + s.u);
    std::copy(v.begin(), v.end(), half.begin() + s.v);
  });
}

/// The half of the singular vectors that belongs to `adam_t`.
template <class Space>
auto vectors_of(const kernels::SpectralNorm<Space>& norm, std::uint64_t adam_t) {
  const int begin = static_cast<int>(adam_t & 1) * norm.half;
  return Kokkos::subview(norm.vectors, std::pair<int, int>(begin, begin + norm.half));
}

/// Everything that training changes.
template <class Space>
void read_learner(const StateFile& in, const Learner<Space>& learner) {
  const ParameterLayout& layout = learner.network.layout;
  const auto& b = learner.buffers;
  const auto tensors = [&](const std::string& group, const auto& to) {
    const auto values = in.tensors(group, layout);
    Kokkos::deep_copy(to, host_view(values));
  };
  tensors("parameters/target", b.target);
  tensors("optimiser/first_moment", b.first_moment);
  tensors("optimiser/second_moment", b.second_moment);
  const auto mask = in.mask("mask", layout);
  if (b.mask.extent(0) > 0) Kokkos::deep_copy(b.mask, host_view(mask));
  const kernels::StepCounters counters = read_counters(in);
  const auto state = Kokkos::create_mirror_view(Kokkos::HostSpace(), learner.state);
  state() = {counters, counters};
  Kokkos::deep_copy(learner.state, state);
  const bool bounded = learner.spectral.enabled();
  if (bounded) {
    const auto half = vectors_of(learner.spectral, counters.adam_t);
    std::vector<float> values = download(half);
    read_vectors(in, "spectral", learner.spectral, values);
    Kokkos::deep_copy(half, host_view(values));
  }

  const auto& s = b.snapshot;
  if (s.parameters.extent(0) == 0) return;
  if (in.has("snapshot")) {
    tensors("snapshot/online", s.parameters);
    tensors("snapshot/target", s.target);
    tensors("snapshot/first_moment", s.first_moment);
    tensors("snapshot/second_moment", s.second_moment);
    const auto snapshot_mask = in.mask("snapshot/mask", layout);
    if (s.mask.extent(0) > 0) Kokkos::deep_copy(s.mask, host_view(snapshot_mask));
  } else {  // the state itself is the last good one
    Kokkos::deep_copy(s.parameters, b.parameters);
    Kokkos::deep_copy(s.target, b.target);
    Kokkos::deep_copy(s.first_moment, b.first_moment);
    Kokkos::deep_copy(s.second_moment, b.second_moment);
    if (s.mask.extent(0) > 0) Kokkos::deep_copy(s.mask, b.mask);
  }
  if (bounded) {
    std::vector<float> values = download(vectors_of(learner.spectral, counters.adam_t));
    read_vectors(in, "snapshot/spectral", learner.spectral, values);
    Kokkos::deep_copy(s.singular, host_view(values));
  }
}

/// Rows of a batch in the file.
int batch_size(const StateFile& in) {
  const io::Extents shape = in.extents("batch/rewards");
  in.require(shape.size() == 1 && shape[0] > 0 && shape[0] % kernels::row_multiple == 0,
             "'batch/rewards' is " + text(shape) + "; a batch has one, or a multiple of " +
                 std::to_string(kernels::row_multiple) + ", rows: [B]");
  return static_cast<int>(shape[0]);
}

template <class Space>
void read_batch(const StateFile& in, const StepBuffers<Space>& b) {
  const auto rows = static_cast<std::uint64_t>(b.batch), width = static_cast<std::uint64_t>(b.online.input.extent(1));
  const auto input = Kokkos::create_mirror_view(Kokkos::HostSpace(), b.online.input);
  std::uint64_t at = 0;
  for (const char* name : {"batch/states", "batch/next_states"}) {
    const auto values = in.read<float>(name, {rows, width});
    std::copy(values.begin(), values.end(), input.data() + at);
    at += rows * width;
  }
  Kokkos::deep_copy(b.online.input, input);
  const auto given = in.read<std::uint8_t>("batch/actions", {rows, kernels::branches});
  const auto actions = Kokkos::create_mirror_view(Kokkos::HostSpace(), b.actions);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const int row = static_cast<int>(i) / kernels::branches, d = static_cast<int>(i) % kernels::branches;
    in.require(given[i] < kernels::actions_of(d), "'batch/actions' [" + std::to_string(row) + ", " + std::to_string(d) +
                                                      "] is " + std::to_string(given[i]) + "; the branch has " +
                                                      std::to_string(kernels::actions_of(d)) + " actions");
    actions(d, row) = given[i];
  }
  Kokkos::deep_copy(b.actions, actions);
  in.read_into(b.rewards, "batch/rewards");
  in.read_into(b.discounts, "batch/discounts");
  in.read_into(b.weights, "batch/weights");
  if (b.next_returns.extent(0) > 0) in.read_into(b.next_returns, "batch/next_returns");
  if (b.exposures.extent(0) > 0) in.read_into(b.exposures, "batch/exposures");
}

template <class Space>
kernels::MarketTable<Space> read_market(const StateFile& in, const Space& space) {
  const io::Extents shape = in.extents("market/features");
  in.require(shape.size() == 2 && shape[0] > 1 && shape[1] > 0,
             "'market/features' is " + text(shape) + ", not [bars, features]");
  const auto close = in.read<double>("market/close", {shape[0]});
  std::vector<market::Bar> bars;
  for (const double c : close) {
    in.require(c > 0 && std::isfinite(c), "'market/close' has " + std::to_string(c) + "; prices are above 0");
    bars.push_back({c, c, c, c, 0});
  }
  return kernels::MarketTable<Space>(space, bars, in.read<float>("market/features", shape), static_cast<int>(shape[1]),
                                     std::vector<std::int32_t>(bars.size(), 0));
}

template <class Space>
Replay<Space> read_replay(const StateFile& in, const Space& space, int n_step, std::uint64_t bars) {
  const io::Extents shape = in.extents("replay/leaves");
  in.require(shape.size() == 2 && shape[0] > static_cast<std::uint64_t>(n_step) && shape[1] > 0,
             "'replay/leaves' is " + text(shape) +
                 ", not [slots, envs] with more slots than agent.n_step = " + std::to_string(n_step));
  const std::uint64_t slots = shape[0], envs = shape[1];
  const auto written = in.scalar<std::uint64_t>("replay/slots_written");
  const auto with = [&](std::uint64_t more) { return io::Extents{slots, envs, more}; };
  const auto leaves = in.read<std::uint32_t>("replay/leaves", shape);
  const auto bar = in.read<std::uint32_t>("replay/bar", shape);
  const auto action = in.read<std::uint8_t>("replay/action", with(kernels::branches));
  const auto flags = in.read<std::uint8_t>("replay/flags", shape);
  const auto offset = in.read<std::uint16_t>("replay/episode_offset", shape);
  const auto held = in.read<std::uint16_t>("replay/bars_held", with(2));
  const auto goal = in.read<float>("replay/goal", shape);
  const auto before = in.read<float>("replay/before", with(4)), after = in.read<float>("replay/after", with(4));

  Replay<Space> replay;
  replay.ring = kernels::ReplayRing<Space>(space, static_cast<std::int64_t>(slots * envs), static_cast<int>(envs), 1);
  replay.counts =
      allocate_zeroed<Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>>>(space, "vulpes::replay::counts");
  const auto rows = Kokkos::create_mirror_view(Kokkos::HostSpace(), replay.ring.rows);
  const kernels::RingView view = replay.ring.view;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    kernels::ReplayRow& row = rows(i);
    const std::string where = " [" + std::to_string(i / envs) + ", " + std::to_string(i % envs) + "] is ";
    in.require(bar[i] + std::uint64_t{1} < bars, "'replay/bar'" + where + std::to_string(bar[i]) +
                                                     "; the bar after it must be among the " + std::to_string(bars) +
                                                     " of 'market/close'");
    row.bar = bar[i];
    for (int d = 0; d < kernels::branches; ++d) {
      row.action[d] = action[i * kernels::branches + d];
      in.require(row.action[d] < kernels::actions_of(d), "'replay/action'" + where + std::to_string(row.action[d]) +
                                                             " in branch " + std::to_string(d) + ", which has " +
                                                             std::to_string(kernels::actions_of(d)) + " actions");
    }
    row.flags = flags[i];
    in.require(row.flags <= kernels::ReplayRow::ended,
               "'replay/flags'" + where + std::to_string(row.flags) + "; 1 is terminal, 2 truncated");
    row.episode_offset = offset[i];
    row.bars_held_before = held[2 * i];
    row.bars_held_after = held[2 * i + 1];
    row.goal = goal[i];
    row.before = {before[4 * i], before[4 * i + 1], before[4 * i + 2], before[4 * i + 3]};
    row.after = {after[4 * i], after[4 * i + 1], after[4 * i + 2], after[4 * i + 3]};
    total += leaves[i];
  }
  // A leaf means: the row is in the ring and so is its n-step window.
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i] == 0) continue;
    const std::uint64_t write = view.write_of(static_cast<std::uint32_t>(i), written);
    bool closed = write != kernels::RingView::no_write && written - write >= static_cast<std::uint64_t>(n_step);
    for (std::uint64_t w = write; !closed && w < written; ++w) {
      closed = (rows((w % slots) * envs + i % envs).flags & kernels::ReplayRow::ended) != 0;
    }
    in.require(closed, "'replay/leaves' [" + std::to_string(i / envs) + ", " + std::to_string(i % envs) +
                           "] has a priority, but its " + std::to_string(n_step) + " bars are not all in the ring");
  }
  in.require(total > 0, "'replay/leaves' are all 0: no row can be drawn");
  Kokkos::deep_copy(replay.ring.rows, rows);
  Kokkos::deep_copy(Kokkos::subview(replay.ring.tree.leaves, std::pair<std::size_t, std::size_t>(0, leaves.size())),
                    host_view(leaves));
  Kokkos::deep_copy(replay.ring.cursor, written);
  kernels::rebuild(space, replay.ring.tree);
  return replay;
}

// --- Writing
// -----------------------------------------------------------------------------------------------------------

template <class View>
auto on_host(const View& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
}

/// A flat array as a dataset; arrays without memory are left out.
template <class View>
void write_array(io::H5Writer& file, const std::string& name, const View& view) {
  if (view.extent(0) > 0) file.write(name, download(view));
}

/// Items [0, items) of rows [first_row, first_row + rows) of a transposed buffer [item, row] as a dataset [rows,
/// items].
template <class View>
void write_columns(io::H5Writer& file, const std::string& name, const View& columns, int first_row, int rows, int items,
                   const std::vector<float>& add = {}) {
  using T = typename View::non_const_value_type;
  const auto host = on_host(columns);
  std::vector<T> out;
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < items; ++i)
      out.push_back(host(i, first_row + r) + (add.empty() ? T(0) : static_cast<T>(add[i])));
  }
  file.write(name, out.data(), {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(items)});
}

void write_mask(io::H5Writer& file, const std::string& group, const ParameterLayout& layout,
                const std::vector<std::uint32_t>& bits) {
  for (const TensorSlice& t : layout.tensors()) {
    if (!t.is_weight) continue;
    std::vector<std::uint8_t> pruned(t.size());
    for (std::size_t i = 0; i < pruned.size(); ++i) {
      pruned[i] = kernels::is_pruned(bits.data(), static_cast<std::int64_t>(t.offset + i));
    }
    file.write(group + "/" + t.name, pruned.data(),
               {static_cast<std::uint64_t>(t.rows), static_cast<std::uint64_t>(t.columns)});
  }
}

template <class Space>
void write_vectors(io::H5Writer& file, const std::string& group, const kernels::SpectralNorm<Space>& norm,
                   const std::vector<float>& half) {
  visit_bounded(norm, [&](const std::string& name, const kernels::SpectralStrip& s) {
    file.write(group + "/u/" + name, half.data() + s.u, {s.rows});
    file.write(group + "/v/" + name, half.data() + s.v, {s.columns});
  });
}

/// One step: what it reads and writes.
template <class Space>
struct Step {
  const StepRules& rules;
  const Learner<Space>& learner;
  const StepBuffers<Space>& buffers;
  const Replay<Space>* replay = nullptr;  ///< null: the batch was given
  const kernels::MarketTable<Space>* table = nullptr;
};

/// The batch as it was drawn, gathered and relabelled.
template <class Space>
void write_drawn(io::H5Writer& file, const StepBuffers<Space>& b) {
  const int rows = b.batch;
  const auto width = static_cast<std::uint64_t>(b.online.input.extent(1));
  write_array(file, "batch/rows", b.draws.rows);
  write_array(file, "batch/leaves", b.draws.leaves);
  const auto input = on_host(b.online.input);
  file.write("batch/states", input.data(), {static_cast<std::uint64_t>(rows), width});
  file.write("batch/next_states", input.data() + static_cast<std::uint64_t>(rows) * width,
             {static_cast<std::uint64_t>(rows), width});
  write_columns(file, "batch/actions", b.actions, 0, rows, kernels::branches);
  write_array(file, "batch/rewards", b.rewards);
  write_array(file, "batch/discounts", b.discounts);
  write_array(file, "batch/weights", b.weights);
  write_array(file, "batch/next_returns", b.next_returns);
  write_array(file, "batch/exposures", b.exposures);
  write_array(file, "batch/relabelled", b.relabelled);
  write_array(file, "batch/goals", b.goals);
  write_array(file, "batch/donors", b.donors);
}

/// Targets, losses and their gradient.
template <class Space>
void write_losses(io::H5Writer& file, const Step<Space>& step, const ParameterLayout& layout) {
  const StepBuffers<Space>& b = step.buffers;
  const StepRules& rules = step.rules;
  const int rows = b.batch, atoms = step.learner.network.shape.atoms;
  const bool conservative = rules.cql > 0, labelled = rules.auxiliary.on;
  write_columns(file, "q/next", b.loss.next_q, 0, rows, kernels::total_actions);
  if (conservative || labelled) {
    write_columns(file, "q/online", b.loss.q, 0, rows, conservative ? kernels::total_actions : kernels::actions_of(0));
  }
  write_columns(file, "next_action", b.loss.next_action, 0, rows, kernels::branches);
  const auto target = on_host(b.loss.target);
  std::vector<float> m;
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < kernels::branches * atoms; ++i) m.push_back(target(rules.per_branch ? i : i % atoms, r));
  }
  file.write("target", m.data(),
             {static_cast<std::uint64_t>(rows), kernels::branches, static_cast<std::uint64_t>(atoms)});
  if (labelled) {
    write_columns(file, "label", b.loss.exposure_label, 0, rows, kernels::actions_of(0));
    write_columns(file, "policy", b.loss.exposure_policy, 0, rows, kernels::actions_of(0));
  }
  const auto outputs = on_host(b.loss.rows_out);
  const auto output = [&](const char* name, int k) {
    file.write(name, &outputs(k, 0), {static_cast<std::uint64_t>(rows)});
  };
  output("q/chosen", kernels::q_out);
  output("loss/rows", kernels::loss_out);
  output("loss/c51", kernels::c51_out);
  output("loss/mse", kernels::mse_out);
  output("loss/kl", kernels::kl_out);
  if (conservative) output("loss/cql", kernels::cql_out);
  if (labelled) output("loss/auxiliary", kernels::auxiliary_out);
  if (rules.diversity > 0) output("loss/diversity", kernels::diversity_out);
  output("delta", kernels::delta_out);
  output("clipped", kernels::clipped_out);
  write_columns(file, "logit_gradient", b.loss.logit_gradient, 0, rows, step.learner.network.shape.logits());
  agent::write_tensors(file, "gradient", layout, step.learner.buffers.gradient);
}

/// Verdict, counters and everything that the update changed.
template <class Space>
void write_update(io::H5Writer& file, const Step<Space>& step, const kernels::StepCounters& before) {
  const Learner<Space>& learner = step.learner;
  const ParameterLayout& layout = learner.network.layout;
  const kernels::StepCounters after = on_host(learner.state)().now;
  if (!after.idle) {
    const auto records = on_host(step.buffers.records);
    const auto* record = &records(before.iteration % records.extent(0), 0);
    file.write_scalar("loss/total", record[kernels::loss_out]);
    for (int g = 0; g < kernels::tensor_groups; ++g) {
      file.write_scalar(std::string("gradient_norms/") + kernels::tensor_group_names[g],
                        record[kernels::group_norm_out + g]);
    }
    file.write_scalar("gradient_norm", after.gradient_norm);
    file.write_scalar("clip", after.clip);
  }
  file.write_scalar<std::uint8_t>("skipped", after.skip != 0);
  file.write_scalar<std::uint8_t>("rolled_back", kernels::rolls_back(before, after));
  file.write_scalar<std::uint8_t>("snapshot_taken", kernels::takes_snapshot(before, after));
  visit_counters(after,
                 [&](const char* name, auto field) { file.write_scalar(std::string("counters/") + name, field); });
  file.write_scalar("counters/fault", static_cast<std::uint32_t>(after.fault));

  const auto tensors = [&](const char* group, const auto& buffer) {
    agent::write_tensors(file, group, layout, buffer);
  };
  const auto& b = learner.buffers;
  tensors("parameters/online", b.parameters);
  tensors("parameters/target", b.target);
  tensors("optimiser/first_moment", b.first_moment);
  tensors("optimiser/second_moment", b.second_moment);
  if (b.mask.extent(0) > 0) write_mask(file, "mask", layout, download(b.mask));
  if (learner.spectral.enabled()) {
    const std::vector<float> sigma = download(learner.spectral.sigma);
    for (std::size_t i = 0; i < sigma.size() && !after.idle; ++i) {
      file.write_scalar("spectral/sigma/" + learner.spectral.names[i], sigma[i]);
    }
    write_vectors(file, "spectral", learner.spectral, download(vectors_of(learner.spectral, after.adam_t)));
  }
  const auto& s = b.snapshot;
  if (s.parameters.extent(0) > 0) {
    tensors("snapshot/online", s.parameters);
    tensors("snapshot/target", s.target);
    tensors("snapshot/first_moment", s.first_moment);
    tensors("snapshot/second_moment", s.second_moment);
    if (s.mask.extent(0) > 0) write_mask(file, "snapshot/mask", layout, download(s.mask));
    if (learner.spectral.enabled()) write_vectors(file, "snapshot/spectral", learner.spectral, download(s.singular));
  }
}

template <class Space>
void write_priorities(io::H5Writer& file, const Replay<Space>& replay, const kernels::Draws<Space>& draws,
                      bool skipped) {
  if (!skipped) {
    write_array(file, "priorities/rows", draws.targets);
    write_array(file, "priorities/units", draws.units);
  }
  const auto counts = on_host(replay.counts);
  file.write_scalar("priorities/saturated", counts().saturated);
  file.write_scalar("priorities/rejected", counts().rejected);
  file.write_scalar("priorities/dropped", counts().dropped);
  const auto leaves = on_host(replay.ring.tree.leaves);
  file.write("replay/leaves", leaves.data(),
             {static_cast<std::uint64_t>(replay.ring.slots), static_cast<std::uint64_t>(replay.ring.envs)});
  const auto& view = replay.ring.tree.view;
  const auto sums = download(replay.ring.tree.sums);
  file.write_scalar("replay/total", sums[static_cast<std::size_t>(view.sums[view.levels - 1] - view.sums[0])]);
}

/// Output biases of a network; logits are written with them.
std::vector<float> output_bias(const kernels::Network& network, const std::vector<float>& parameters) {
  const TensorSlice& t = network.layout[network.output_bias];
  const auto begin = parameters.begin() + static_cast<std::ptrdiff_t>(t.offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(t.size())};
}

/// Runs the step and writes all of it.
template <class Space>
void run_and_write(const Space& space, const Step<Space>& step, const std::string& out) {
  const kernels::Network& network = step.learner.network;
  const StepBuffers<Space>& b = step.buffers;
  const kernels::StepCounters before = on_host(step.learner.state)().now;
  // As the forward passes see them: the spectral norm leaves biases alone, the update comes later.
  const std::vector<float> online_bias = output_bias(network, download(step.learner.buffers.parameters)),
                           target_bias = output_bias(network, download(step.learner.buffers.target));
  const Periodic periodic = step.rules.periodic(static_cast<std::int64_t>(before.iteration));
  const StepContext<Space> context{step.rules, step.learner, b, step.replay ? *step.replay : Replay<Space>(),
                                   step.table ? *step.table : kernels::MarketTable<Space>()};
  const Lanes<Space> lanes(space);
  if (step.replay) {
    training_step(lanes, context, periodic);
  } else {
    learn(lanes, context, periodic);
    kernels::finish_step(space, b.loss, step.learner.work, step.learner.state, b.records);
  }
  space.fence("vulpes::step_file");

  io::H5Writer file(out);
  const int logits = network.shape.logits();
  if (step.replay) write_drawn(file, b);
  if (step.rules.survival.value[0] < 1) {
    const kernels::StochasticDepth depth{step.rules.key, &before.iteration, step.rules.survival, b.batch};
    std::vector<double> factors;
    for (int l = 1; l <= network.shape.blocks; ++l)
      factors.push_back(kernels::block_factor(depth, l, network.shape.blocks));
    file.write("block_factors", factors);
  }
  write_columns(file, "logits/online", b.online.logits, 0, b.batch, logits, online_bias);
  write_columns(file, "logits/online_next", b.online.logits, b.batch, b.batch, logits, online_bias);
  write_columns(file, "logits/target_next", b.target_next.logits, 0, b.batch, logits, target_bias);
  write_losses(file, step, network.layout);
  write_update(file, step, before);
  if (step.replay) write_priorities(file, *step.replay, b.draws, on_host(step.learner.state)().now.skip != 0);
  if (periodic.causal) {
    const auto records = on_host(b.causal.records);
    const std::uint64_t row =
        before.iteration / static_cast<std::uint64_t>(step.rules.causal_every) % records.extent(0);
    file.write("q_delta", &records(row, 0), {records.extent(1)});
  }
  file.finish();
}

// --- The three kinds of state
// --------------------------------------------------------------------------------------------

/// Groups of inputs for the causal Q-delta: the file's `causal/groups` [S].
kernels::FeatureGroups read_groups(const StateFile& in, int width) {
  kernels::FeatureGroups groups;
  groups.of = in.read<std::int32_t>("causal/groups", {static_cast<std::uint64_t>(width)});
  const auto [least, most] = std::minmax_element(groups.of.begin(), groups.of.end());
  in.require(*least >= 0 && *most < width, "'causal/groups' must hold numbers from 0 to S - 1");
  for (int g = 0; g <= *most; ++g) {
    in.require(std::count(groups.of.begin(), groups.of.end(), g) > 0,
               "'causal/groups' leaves out " + std::to_string(g) + "; numbers must be consecutive");
    groups.names.push_back(std::to_string(g));
  }
  return groups;
}

template <class Space>
void run_open_state(const Space& space, io::Config config, const io::H5Reader& file, const std::string& out,
                    bool trace) {
  const StateFile in(file);
  const bool drawn = step_source(file) == StepSource::replay;
  if (!drawn) config.train.batch = batch_size(in);
  const std::int64_t width = in.scalar<std::int64_t>("state_width");
  in.require(width > 0 && width % kernels::width_multiple == 0 && width <= 65536,
             "'state_width' is " + std::to_string(width) + "; a positive multiple of 8 is needed");
  kernels::NetworkShape shape = agent::network_shape(config.network, 0);
  shape.state = static_cast<int>(width);
  const double vmin = in.scalar<double>("support/vmin"), vmax = in.scalar<double>("support/vmax");
  in.require(vmin < vmax && std::isfinite(vmax - vmin), "'support/vmin' must be below 'support/vmax'");
  const double return_sd = config.auxiliary.weight > 0 ? in.scalar<double>("market/return_sd") : 1.0;
  in.require(return_sd > 0, "'market/return_sd' must be above 0");
  const double reward_scale = in.scalar<double>("market/reward_scale", config.reward.scale);
  in.require(!drawn || reward_scale != 0, "no 'market/reward_scale' in it, and reward.scale = 0 needs one");
  const RandomKey key{static_cast<std::uint32_t>(config.run.seed),
                      static_cast<std::uint32_t>(in.scalar<std::int64_t>("fold", 1))};
  const StepRules rules = make_step_rules(config, key, vmin, vmax, reward_scale, return_sd);

  const Learner<Space> learner(space, shape, in.tensors("parameters/online", kernels::Network(shape).layout),
                               learner_options(config));
  read_learner(in, learner);
  const kernels::FeatureGroups groups =
      config.causal.every > 0 ? read_groups(in, shape.state) : kernels::FeatureGroups();
  StepParts parts = step_parts(config, groups);
  parts.trace = trace && drawn;
  parts.hindsight = parts.hindsight && drawn;
  const StepBuffers<Space> buffers(space, shape, parts, 1);
  if (!drawn) {
    read_batch(in, buffers);
    return run_and_write(space, Step<Space>{rules, learner, buffers}, out);
  }
  const kernels::MarketTable<Space> table = read_market(in, space);
  in.require(agent::state_width(table.feature_columns) == shape.state,
             "'market/features' has " + std::to_string(table.feature_columns) + " columns, which makes a state of " +
                 std::to_string(agent::state_width(table.feature_columns)) +
                 ", not of 'state_width' = " + std::to_string(shape.state));
  const Replay<Space> replay = read_replay(in, space, static_cast<int>(config.agent.n_step), table.bars.extent(0));
  run_and_write(space, Step<Space>{rules, learner, buffers, &replay, &table}, out);
}

/// The result of reading a checkpoint; one that is damaged or of another program is the user's to replace.
template <class F>
auto input_errors(const F& read) {
  try {
    return read();
  } catch (const RunError& error) {
    throw InputError(error.what());
  }
}

template <class Space>
void run_checkpoint(const Space& space, const io::Config& stored, int fold, const std::string& path,
                    const std::string& out, bool trace) {
  const Dataset data = load_dataset(stored);
  const auto ranges =
      std::find_if(data.folds.begin(), data.folds.end(), [&](const auto& f) { return f.number == fold; });
  throw_if<InputError>(ranges == data.folds.end(),
                       path + ": fold " + std::to_string(fold) + " of a run of " + std::to_string(data.folds.size()));
  FoldTrainer<Space> trainer(stored, data, *ranges);
  input_errors([&] { return trainer.load(path); });
  const StepContext<Space>& parts = trainer.context();
  // A state that the guard froze is looked at as if it were not: otherwise no step would do anything.
  const auto state = on_host(parts.learner.state);
  state().now.stopped = state().next.stopped = 0;
  Kokkos::deep_copy(parts.learner.state, state);
  trainer.collect_for_updates();

  StepParts own = step_parts(stored, trainer.groups());
  own.trace = trace;
  const StepBuffers<Space> buffers(space, parts.learner.network.shape, own, 1);
  Kokkos::deep_copy(buffers.draws.smallest, parts.buffers.draws.smallest);
  run_and_write(space, Step<Space>{parts.rules, parts.learner, buffers, &parts.replay, &parts.table}, out);
}

}  // namespace

StepSource step_source(const io::H5Reader& state) {
  const StateFile in(state);
  if (state.has("kind")) {
    in.require(state.has("training/state"),
               "a policy without training state; give a full checkpoint (fold-K-step-N.h5) or a state with a batch");
    return StepSource::checkpoint;
  }
  in.require(state.has("state_width"), "no 'state_width' in it: neither a checkpoint nor a state");
  const bool batch = state.has("batch"), replay = state.has("replay");
  in.require(batch || replay, "neither 'batch' nor 'replay' in it");
  in.require(!batch || !replay, "both 'batch' and 'replay' in it: a step learns from one");
  return replay ? StepSource::replay : StepSource::batch;
}

void run_step_file(const io::H5Reader& state, const io::Config& config, const std::string& out, bool trace) {
  if (step_source(state) != StepSource::checkpoint) {
    return on_device(config.run.device, [&](const auto& space) { run_open_state(space, config, state, out, trace); });
  }
  const agent::Policy policy = input_errors([&] { return agent::read_policy(state); });
  for (const std::string& name : io::difference(policy.config, config)) {
    throw_if<InputError>(name != "run.device", state.path() + ": was trained with another " + name +
                                                   "; of a checkpoint's settings run.device alone may change");
  }
  on_device(config.run.device,
            [&](const auto& space) { run_checkpoint(space, policy.config, policy.fold, state.path(), out, trace); });
}

}  // namespace vulpes::trainer
