#include "vulpes/trainer/fold_trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/kernels/formulas/priority.hpp"

namespace vulpes::trainer {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Copies a device array into a file as raw bytes of its elements.
template <class View>
void write_bytes(io::H5Writer& file, const std::string& name, const View& view) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  const std::size_t size = sizeof(typename View::value_type);
  file.write(name, reinterpret_cast<const std::uint8_t*>(host.data()), {host.span(), size});
}
template <class View>
void read_bytes(const io::H5Reader& file, const std::string& name, const View& view) {
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view);
  file.read_into(name, reinterpret_cast<std::uint8_t*>(host.data()), host.span() * sizeof(typename View::value_type));
  Kokkos::deep_copy(view, host);
}

/// Standard deviation of the log returns from close to close within segments of a range.
double return_sd(const Dataset& data, Range range) {
  double sum = 0, squares = 0;
  std::size_t count = 0;
  for (std::size_t i = range.begin + 1; i < range.end; ++i) {
    if (data.bars.segment[i] != data.bars.segment[i - 1]) continue;
    const double r = std::log(data.bars.close[i] / data.bars.close[i - 1]);
    sum += r;
    squares += r * r;
    ++count;
  }
  return count > 1 ? std::sqrt(std::max(0.0, squares / count - (sum / count) * (sum / count))) : 0.0;
}

int record_rows(const io::Config& c) { return static_cast<int>(std::min(c.train.epoch_steps, c.train.steps)); }

/// Bytes of a forward pass' buffers for `rows` rows.
std::size_t activation_bytes(const kernels::NetworkShape& s, std::size_t rows) {
  const std::size_t widths = s.state + s.hidden1 + s.hidden2 + 2 * s.blocks * s.hidden2 + s.hidden_width();
  return 4 * (rows * widths + static_cast<std::size_t>(s.logits()) * (rows + kernels::column_padding));
}

}  // namespace

SupportEnds support_rule(double sd, double gamma) {
  const double vmax = sd * (3.0 / std::sqrt(1.0 - gamma * gamma) + 0.15 / (1.0 - gamma) + 0.6);
  return {-0.6 * vmax, vmax};
}

MemoryEstimate estimate_memory(const io::Config& c, std::size_t bars, int feature_columns) {
  const kernels::NetworkShape s = agent::network_shape(c.network, feature_columns);
  const kernels::Network network(s);
  const auto batch = static_cast<std::size_t>(c.train.batch), envs = static_cast<std::size_t>(c.collect.envs);
  const std::size_t slots = (static_cast<std::size_t>(c.replay.rows) + envs - 1) / envs;
  MemoryEstimate m;
  m.replay = slots * envs * (sizeof(kernels::ReplayRow) + 8) + slots * envs / 31 * 8;
  m.network = 5 * 4 * network.layout.size();
  const std::size_t column = 4 * (batch + kernels::column_padding);
  m.step = activation_bytes(s, 2 * batch) + activation_bytes(s, batch) - 4 * batch * s.state +
           4 * batch * (s.hidden_width() + 2 * s.hidden2 + s.hidden1) +
           column * (s.logits() + 4 * kernels::branches * s.atoms + kernels::total_actions + 40) +
           activation_bytes(s, kernels::padded_rows(static_cast<int>(envs))) + envs * sizeof(kernels::Environment);
  m.market = bars * (sizeof(market::Bar) + 4 * static_cast<std::size_t>(feature_columns) + 4);
  return m;
}

std::size_t estimate_checkpoint(const io::Config& c, int feature_columns) {
  const kernels::Network network(agent::network_shape(c.network, feature_columns));
  const auto envs = static_cast<std::size_t>(c.collect.envs);
  const std::size_t rows = (static_cast<std::size_t>(c.replay.rows) + envs - 1) / envs * envs;
  return 5 * 4 * network.layout.parameter_count() + rows * (sizeof(kernels::ReplayRow) + 4) +
         envs * sizeof(kernels::Environment);
}

template <class Space>
FoldTrainer<Space>::FoldTrainer(const io::Config& config, const Dataset& data, const Dataset::FoldRanges& fold)
    : config_(config),
      data_(data),
      fold_(fold),
      key_{static_cast<std::uint32_t>(config.run.seed), static_cast<std::uint32_t>(fold.number)} {
  throw_if<InputError>(config.train.batch % kernels::row_multiple != 0,
                       "train.batch = " + std::to_string(config.train.batch) + " is not a multiple of " +
                           std::to_string(kernels::row_multiple));
  std::vector<std::string> warnings;
  normaliser_ =
      market::Normaliser::fit(data.features, fold.train.begin, fold.train.end, config.features.clip, &warnings);
  for (const std::string& w : warnings) io::log()->warn("fold {}: {}", fold.number, w);
  const int columns = data.features.columns;
  table_ = kernels::MarketTable<Space>(space_, data.account_bars, normaliser_.apply(data.features), columns,
                                       data.bars.segment);
  validation_walks_ = walks_of(data, fold.validation, static_cast<std::size_t>(config.collect.window));
  throw_if<InputError>(validation_walks_.empty(),
                       data.source + ": fold " + std::to_string(fold.number) + ": no usable validation bar");

  const kernels::NetworkShape shape = agent::network_shape(config.network, columns);
  learner_.emplace(space_, shape, agent::initial_parameters(kernels::Network(shape), key_),
                   config.optimiser.spectral_trunk, config.optimiser.spectral_output);
  buffers_ = StepBuffers<Space>(space_, shape, static_cast<int>(config.train.batch), record_rows(config));
  const int envs = static_cast<int>(config.collect.envs);
  replay_.ring =
      kernels::ReplayRing<Space>(space_, config.replay.rows, envs, static_cast<int>(config.agent.n_step) + 1);
  replay_.counts =
      allocate_zeroed<Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>>>(space_, "vulpes::replay::counts");
  collect_buffers_ = kernels::CollectBuffers<Space>(space_, shape, envs);

  const auto starts = start_intervals(data, fold.train, static_cast<std::size_t>(config.agent.n_step));
  collect_arguments_ = make_collect_arguments(space_, config, key_, *learner_, table_, starts, fold.train);
  reward_scale_ = config.reward.scale;
  if (reward_scale_ == 0) {
    const double sd = return_sd(data, fold.train);
    throw_if<InputError>(!(sd > 0), data.source + ": the training range's close never changes: nothing to learn");
    reward_scale_ = 0.45 / sd;
  }
}

template <class Space>
void FoldTrainer<Space>::prepare_rules(double vmin, double vmax, double reward_scale) {
  vmin_ = vmin;
  vmax_ = vmax;
  reward_scale_ = reward_scale;
  rules_ = make_step_rules(config_, key_, vmin, vmax, reward_scale);
  collect_arguments_.support = rules_.support;
  collect_arguments_.epsilon =
      Schedule::linear(config_.collect.epsilon_start, config_.collect.epsilon_end,
                       static_cast<std::int64_t>(config_.collect.epsilon_fraction * config_.train.steps));
}

template <class Space>
void FoldTrainer<Space>::collect(std::int64_t bar_steps) {
  kernels::refresh_new_priority(space_, replay_.ring);
  for (std::int64_t i = 0; i < bar_steps; ++i) {
    collect_bar(space_, collect_arguments_, *learner_, collect_buffers_, replay_.ring, rules_.gather.n_step);
  }
  progress_.bar_steps += bar_steps * replay_.ring.envs;
}

template <class Space>
void FoldTrainer<Space>::prefill() {
  prepare_rules(-1, 1, reward_scale_);
  const kernels::Exploration exploration = collect_arguments_.exploration;
  collect_arguments_.exploration = kernels::Exploration::epsilon;
  collect_arguments_.epsilon = Schedule::constant(1.0);
  kernels::begin_episodes(space_, collect_arguments_, collect_buffers_);
  const std::int64_t envs = replay_.ring.envs;
  const std::int64_t least = std::max<std::int64_t>(config_.replay.learning_starts, config_.train.batch);
  collect(std::min<std::int64_t>((least + envs - 1) / envs + config_.agent.n_step, replay_.ring.slots));
  collect_arguments_.exploration = exploration;

  double vmin = config_.agent.vmin, vmax = config_.agent.vmax;
  if (vmin == 0 && vmax == 0) {
    // Spread of a bar's growth at full exposure, from what the random accounts lived through.
    const auto rows = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), replay_.ring.rows);
    const std::size_t count =
        static_cast<std::size_t>(std::min(progress_.bar_steps, static_cast<std::int64_t>(rows.extent(0))));
    double growth = 0, exposure = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double g = rows(i).after.log_growth - rows(i).before.log_growth;
      growth += g * g;
      exposure += static_cast<double>(rows(i).after.exposure) * rows(i).after.exposure;
    }
    throw_if<InputError>(!(exposure > 0) || !(growth > 0),
                         "support rule: random play never held a position; set agent.vmin and agent.vmax");
    const SupportEnds ends = support_rule(reward_scale_ * std::sqrt(growth / exposure), config_.agent.gamma);
    vmin = ends.vmin;
    vmax = ends.vmax;
  }
  prepare_rules(vmin, vmax, reward_scale_);
  io::log()->info("fold {}: {} rows collected at random; reward scale {:.4g}, support [{:.4g}, {:.4g}]", fold_.number,
                  progress_.bar_steps, reward_scale_, vmin, vmax);
}

template <class Space>
double FoldTrainer<Space>::validate(std::vector<evaluator::WalkResult>* results) const {
  const bool averaged = config_.train.evaluate_with == "target";
  const evaluator::Actor<Space> actor{learner_->network, rules_.support,
                                      averaged ? learner_->buffers.target : learner_->buffers.parameters};
  *results = evaluator::backtest(space_, actor, table_, collect_arguments_.rules, collect_arguments_.window,
                                 validation_walks_);
  return evaluator::mean_growth(*results);
}

template <class Space>
std::optional<io::Record> FoldTrainer<Space>::run_epoch(const std::function<bool()>& stop) {
  const std::int64_t first = progress_.epoch * config_.train.epoch_steps, resumed = progress_.steps;
  const std::int64_t last = std::min(config_.train.steps, first + config_.train.epoch_steps);
  const double began = seconds_now();
  const std::int64_t bars_before = progress_.bar_steps;
  while (progress_.steps < last) {
    if (stop()) return std::nullopt;
    collect(config_.train.collect_steps);
    const std::int64_t updates = std::min(config_.train.updates, last - progress_.steps);
    for (std::int64_t i = 0; i < updates; ++i) training_step(space_, rules_, *learner_, buffers_, replay_, table_);
    progress_.steps += updates;
  }
  const auto records = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffers_.records);
  const auto state = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), learner_->state);
  const auto counts = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), replay_.counts);
  const auto largest = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), replay_.ring.largest);
  const double trained = seconds_now() - began;
  ++progress_.epoch;

  std::vector<evaluator::WalkResult> results;
  const double score = validate(&results);
  const double validated = seconds_now() - began - trained;
  if (progress_.best_step == 0 || score > progress_.best_score) {
    progress_.best_score = score;
    progress_.best_step = progress_.steps;
    progress_.epochs_without_gain = 0;
  } else {
    ++progress_.epochs_without_gain;
  }
  progress_.finished = progress_.steps >= config_.train.steps ||
                       (config_.train.patience > 0 && progress_.epochs_without_gain >= config_.train.patience);

  // Means over the epoch's steps; a skipped step's losses may be NaN and are left out.
  double sums[kernels::step_outputs] = {};
  std::int64_t used = 0;
  double clipped_steps = 0;
  for (std::int64_t s = first; s < progress_.steps; ++s) {
    const auto record = [&](int k) { return records(static_cast<std::size_t>(s) % records.extent(0), k); };
    sums[kernels::skip_out] += record(kernels::skip_out);
    if (record(kernels::skip_out) != 0) continue;
    ++used;
    clipped_steps += record(kernels::clip_out) < 1 ? 1 : 0;
    for (int k = 0; k < kernels::skip_out; ++k) sums[k] += record(k);
  }
  const auto mean = [&](int k) {
    return used ? std::optional<double>(sums[k] / static_cast<double>(used)) : std::nullopt;
  };
  double turnover = 0, exposure = 0, bars = 0;
  for (const evaluator::WalkResult& r : results) {
    for (const kernels::BacktestRecord& b : r.records) {
      turnover += std::abs(b.fill_units * b.fill_price) / b.equity;
      exposure += std::abs(b.exposure);
      ++bars;
    }
  }
  const std::int64_t step = progress_.steps;
  const double clipped_mass = mean(kernels::clipped_out).value_or(0);
  if (clipped_mass > 0.05) {
    io::log()->warn(
        "fold {}, step {}: {:.1f} % of the target mass was clipped at the support's ends; widen agent.vmin and "
        "agent.vmax",
        fold_.number, step, 100 * clipped_mass);
  }
  return io::Record{
      {"fold", fold_.number},
      {"epoch", static_cast<double>(progress_.epoch)},
      {"step", static_cast<double>(step)},
      {"bar_steps", static_cast<double>(progress_.bar_steps)},
      {"loss", mean(kernels::loss_out)},
      {"loss_c51", mean(kernels::c51_out)},
      {"loss_mse", mean(kernels::mse_out)},
      {"kl", rules_.blend(first) > 0 ? mean(kernels::kl_out) : std::nullopt},
      {"delta", mean(kernels::delta_out)},
      {"q_mean", mean(kernels::q_out)},
      {"next_q_mean", mean(kernels::next_q_out)},
      {"clipped_target_mass", mean(kernels::clipped_out)},
      {"gradient_norm", mean(kernels::gradient_norm_out)},
      {"clip_share", used ? std::optional<double>(clipped_steps / static_cast<double>(used)) : std::nullopt},
      {"skipped_steps", sums[kernels::skip_out]},
      {"learning_rate", rules_.optimiser.rate(step)},
      {"epsilon", collect_arguments_.epsilon(step)},
      {"beta", rules_.gather.beta(step)},
      {"blend", rules_.blend(step)},
      {"largest_priority", largest() / kernels::priority_one},
      {"priority_saturations", static_cast<double>(counts().saturated)},
      {"priority_rejections", static_cast<double>(counts().rejected)},
      {"validation_growth_bp", 1e4 * score},
      {"validation_turnover", bars > 0 ? std::optional<double>(turnover / bars) : std::nullopt},
      {"validation_absolute_exposure", bars > 0 ? std::optional<double>(exposure / bars) : std::nullopt},
      {"best", is_best() ? 1.0 : 0.0},
      {"updates_accepted", static_cast<double>(state().adam_t)},
      {"steps_per_second", static_cast<double>(step - resumed) / trained},
      {"bar_steps_per_second", static_cast<double>(progress_.bar_steps - bars_before) / trained},
      {"validation_seconds", validated}};
}

template <class Space>
agent::Policy FoldTrainer<Space>::policy() const {
  agent::Policy p;
  p.config = config_;
  p.shape = learner_->network.shape;
  p.vmin = vmin_;
  p.vmax = vmax_;
  p.reward_scale = reward_scale_;
  p.feature_names = data_.features.names;
  p.normaliser = normaliser_;
  p.parameters =
      download(config_.train.evaluate_with == "target" ? learner_->buffers.target : learner_->buffers.parameters);
  p.step = progress_.steps;
  p.fold = fold_.number;
  p.score = progress_.best_score;
  return p;
}

template <class Space>
void FoldTrainer<Space>::save(const std::string& path, std::int64_t metric_rows) const {
  io::H5Writer file(path);
  agent::write_policy(file, policy());
  const ParameterLayout& layout = learner_->network.layout;
  const auto& b = learner_->buffers;
  file.write_string("training/numerics", host_numerics_description());
  agent::write_tensors(file, "training/online", layout, b.parameters);
  agent::write_tensors(file, "training/target", layout, b.target);
  agent::write_tensors(file, "training/first_moment", layout, b.first_moment);
  agent::write_tensors(file, "training/second_moment", layout, b.second_moment);
  file.write("training/spectral/u", download(learner_->spectral.u));
  file.write("training/spectral/v", download(learner_->spectral.v));
  write_bytes(file, "training/state", learner_->state);
  write_bytes(file, "training/replay/rows", replay_.ring.rows);
  write_bytes(file, "training/replay/leaves", replay_.ring.tree.leaves);
  write_bytes(file, "training/replay/cursor", replay_.ring.cursor);
  write_bytes(file, "training/replay/counts", replay_.counts);
  write_bytes(file, "training/replay/smallest", buffers_.draws.smallest);
  write_bytes(file, "training/environments", collect_buffers_.environments);
  write_bytes(file, "training/records", buffers_.records);
  file.write_scalar("training/progress/epoch", progress_.epoch);
  file.write_scalar("training/progress/steps", progress_.steps);
  file.write_scalar("training/progress/bar_steps", progress_.bar_steps);
  file.write_scalar("training/progress/epochs_without_gain", progress_.epochs_without_gain);
  file.write_scalar("training/progress/best_step", progress_.best_step);
  file.write_scalar("training/progress/best_score", progress_.best_score);
  file.write_scalar<std::uint8_t>("training/progress/finished", progress_.finished);
  file.write_scalar("training/metric_rows", metric_rows);
  file.finish();
}

template <class Space>
std::int64_t FoldTrainer<Space>::load(const std::string& path) {
  const io::H5Reader file(path);
  const agent::Policy p = agent::read_policy(file);
  throw_if<RunError>(!file.has("training/state"),
                     path + ": a policy without training state; it can be evaluated, not resumed");
  const auto differing = io::difference(p.config, config_);
  throw_if<InputError>(!differing.empty(), path + ": was trained with another " +
                                               (differing.empty() ? "" : differing.front()) +
                                               "; resume with the configuration of the run folder");
  throw_if<InputError>(p.shape != learner_->network.shape || p.feature_names != data_.features.names,
                       path + ": the data have other features than the run was started with");
  throw_if<InputError>(
      p.normaliser.median != normaliser_.median || p.normaliser.scale != normaliser_.scale,
      path + ": the data of fold " + std::to_string(fold_.number) + " are not those the run was started with");
  const std::string numerics = file.read_string("training/numerics");
  if (numerics != host_numerics_description()) {
    io::log()->warn("the run used {}; this process uses {}: results will differ in the last bits", numerics,
                    host_numerics_description());
  }
  prepare_rules(p.vmin, p.vmax, p.reward_scale);
  const ParameterLayout& layout = learner_->network.layout;
  const auto& b = learner_->buffers;
  agent::read_tensors(file, "training/online", layout, b.parameters);
  agent::read_tensors(file, "training/target", layout, b.target);
  agent::read_tensors(file, "training/first_moment", layout, b.first_moment);
  agent::read_tensors(file, "training/second_moment", layout, b.second_moment);
  read_bytes(file, "training/state", learner_->state);
  read_bytes(file, "training/replay/rows", replay_.ring.rows);
  read_bytes(file, "training/replay/leaves", replay_.ring.tree.leaves);
  read_bytes(file, "training/replay/cursor", replay_.ring.cursor);
  read_bytes(file, "training/replay/counts", replay_.counts);
  read_bytes(file, "training/replay/smallest", buffers_.draws.smallest);
  read_bytes(file, "training/environments", collect_buffers_.environments);
  read_bytes(file, "training/records", buffers_.records);
  const auto vector = [&](const char* name, const Vector<float, Space>& v) {
    const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), v);
    file.read_into(name, host.data(), host.extent(0));
    Kokkos::deep_copy(v, host);
  };
  vector("training/spectral/u", learner_->spectral.u);
  vector("training/spectral/v", learner_->spectral.v);
  kernels::rebuild(space_, replay_.ring.tree);
  kernels::write_states(space_, collect_arguments_, collect_buffers_);
  progress_.epoch = file.read_scalar<std::int64_t>("training/progress/epoch");
  progress_.steps = file.read_scalar<std::int64_t>("training/progress/steps");
  progress_.bar_steps = file.read_scalar<std::int64_t>("training/progress/bar_steps");
  progress_.epochs_without_gain = file.read_scalar<std::int64_t>("training/progress/epochs_without_gain");
  progress_.best_step = file.read_scalar<std::int64_t>("training/progress/best_step");
  progress_.best_score = file.read_scalar<double>("training/progress/best_score");
  progress_.finished = file.read_scalar<std::uint8_t>("training/progress/finished") != 0;
  return file.read_scalar<std::int64_t>("training/metric_rows");
}

#define INSTANTIATE(S) template class FoldTrainer<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
