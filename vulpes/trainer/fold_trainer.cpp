#include "vulpes/trainer/fold_trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/runtime.hpp"
#include "vulpes/core/scope.hpp"
#include "vulpes/core/timing.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/kernels/formulas/priority.hpp"
#include "vulpes/trainer/epoch_record.hpp"

namespace vulpes::trainer {
namespace {

/// Copies a device array into a file: floats as they are, else the raw bytes of each element.
template <class View>
void write_array(io::H5Writer& file, const std::string& name, const View& view) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  if constexpr (std::is_same_v<typename View::value_type, float>) {
    file.write(name, host.data(), {host.span()});
  } else {
    file.write(name, reinterpret_cast<const std::uint8_t*>(host.data()),
               {host.span(), sizeof(typename View::value_type)});
  }
}
template <class View>
void read_array(const io::H5Reader& file, const std::string& name, const View& view) {
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view);
  if constexpr (std::is_same_v<typename View::value_type, float>) {
    file.read_into(name, host.data(), host.span());
  } else {
    file.read_into(name, reinterpret_cast<std::uint8_t*>(host.data()), host.span() * sizeof(typename View::value_type));
  }
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
  const bool snapshots = c.guard.patience > 0;
  m.network = ((snapshots ? 9 : 5) + (c.train.validate ? 2 : 0)) * 4 * network.layout.size();
  const std::size_t column = 4 * (batch + kernels::column_padding);
  m.step = activation_bytes(s, 2 * batch) + activation_bytes(s, batch) - 4 * batch * s.state +
           4 * batch * (s.hidden_width() + 2 * s.hidden2 + s.hidden1) +
           column * (s.logits() + 4 * kernels::branches * s.atoms + 4 * kernels::total_actions + 80) +
           activation_bytes(s, kernels::padded_rows(static_cast<int>(envs))) + envs * sizeof(kernels::Environment);
  if (c.causal.every > 0) {
    // Blocks of rows as they are and under each intervention; the built-in features have eight groups.
    m.step += activation_bytes(s, 9 * static_cast<std::size_t>(c.causal.rows));
  }
  m.market = bars * (sizeof(market::Bar) + 4 * static_cast<std::size_t>(feature_columns) + 4);
  return m;
}

std::size_t estimate_checkpoint(const io::Config& c, int feature_columns) {
  const kernels::Network network(agent::network_shape(c.network, feature_columns));
  const auto envs = static_cast<std::size_t>(c.collect.envs);
  const std::size_t rows = (static_cast<std::size_t>(c.replay.rows) + envs - 1) / envs * envs;
  // One policy, and online, target and moments, which a snapshot has too; the policy that was validated last.
  const std::size_t buffers = (c.guard.patience > 0 ? 9 : 5) + (c.train.validate ? 1 : 0);
  return buffers * 4 * network.layout.parameter_count() + rows * (sizeof(kernels::ReplayRow) + 4) +
         envs * sizeof(kernels::Environment);
}

template <class Space>
FoldTrainer<Space>::FoldTrainer(const io::Config& config, const Dataset& data, const Dataset::FoldRanges& fold)
    : config_(config),
      data_(data),
      fold_(fold),
      lanes_(instance_of<Space>(Queue::main)),
      key_{static_cast<std::uint32_t>(config.run.seed), static_cast<std::uint32_t>(fold.number)} {
  const InWindow window(Window::fold);
  std::vector<std::string> warnings;
  normaliser_ =
      market::Normaliser::fit(data.features, fold.train.begin, fold.train.end, config.features.clip, &warnings);
  for (const std::string& w : warnings) io::log()->warn("fold {}: {}", fold.number, w);
  seen_ = agent::SeenBars::of(data.bars, fold.train.begin, fold.validation.end);
  const int columns = data.features.columns;
  table_ = kernels::MarketTable<Space>(space_, data.account_bars, normaliser_.apply(data.features), columns,
                                       data.bars.segment);
  throw_if<InputError>(walks_of(data, fold.validation, static_cast<std::size_t>(config.collect.window)).empty(),
                       data.source + ": fold " + std::to_string(fold.number) + ": no usable validation bar");

  const kernels::NetworkShape shape = agent::network_shape(config.network, columns);
  learner_.emplace(space_, shape, agent::initial_parameters(kernels::Network(shape), key_), learner_options(config));
  groups_ = kernels::feature_groups(data.features, shape.state);
  buffers_ = StepBuffers<Space>(space_, shape, step_parts(config, groups_), record_rows(config));
  const int envs = static_cast<int>(config.collect.envs);
  replay_.ring =
      kernels::ReplayRing<Space>(space_, config.replay.rows, envs, static_cast<int>(config.agent.n_step) + 1);
  replay_.counts =
      allocate_zeroed<Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>>>(space_, "vulpes::replay::counts");
  collect_buffers_ = kernels::CollectBuffers<Space>(space_, shape, envs);

  const auto starts = start_intervals(data, fold.train, static_cast<std::size_t>(config.agent.n_step));
  collect_arguments_ = make_collect_arguments(space_, config, key_, *learner_, table_, starts, fold.train);
  return_sd_ = return_sd(data, fold.train);
  throw_if<InputError>(!(return_sd_ > 0), data.source + ": the training range's close never changes: nothing to learn");
  reward_scale_ = config.reward.scale != 0 ? config.reward.scale : 0.45 / return_sd_;
}

template <class Space>
void FoldTrainer<Space>::prepare_rules(double vmin, double vmax, double reward_scale) {
  vmin_ = vmin;
  vmax_ = vmax;
  reward_scale_ = reward_scale;
  rules_ = make_step_rules(config_, key_, vmin, vmax, reward_scale, return_sd_);
  collect_arguments_.support = rules_.support;
  collect_arguments_.epsilon =
      Schedule::linear(config_.collect.epsilon_start, config_.collect.epsilon_end,
                       static_cast<std::int64_t>(config_.collect.epsilon_fraction * config_.train.steps));
}

template <class Space>
void FoldTrainer<Space>::begin_training() {
  StepContext<Space> context{rules_, *learner_, buffers_, replay_, table_};
  figures_ = EpochFigures<Space>(space_, context);
  if (config_.train.validate) {
    const evaluator::Actor<Space> actor{learner_->network, rules_.support, validated_parameters(),
                                        collect_arguments_.goal};
    validator_ = std::make_unique<Validator<Space>>(
        actor, table_, collect_arguments_.rules, collect_arguments_.window,
        walks_of(data_, fold_.validation, static_cast<std::size_t>(config_.collect.window)));
  }
  runner_.emplace(lanes_, std::move(context), graph_mode(config_.graph.mode),
                  GraphFaults{graph_phase(config_.inject.capture), config_.inject.captures});
  space_.fence("vulpes::fold_trainer::ready");
}

template <class Space>
void FoldTrainer<Space>::collect(std::int64_t bar_steps) {
  const InWindow window(Window::collection);
  // Some tens of bars a piece: a recorded one does not grow with the collection.
  constexpr std::int64_t piece_bars = 32;
  for (std::int64_t done = 0; done < bar_steps; done += piece_bars) {
    const std::int64_t bars = std::min(piece_bars, bar_steps - done);
    const bool first = done == 0;
    const auto report = [](const std::string& why) {
      io::log()->warn("collection could not be run as a graph ({}); it goes on without", why);
    };
    auto piece = collections_.find({bars, first});
    if (piece == collections_.end()) {
      piece =
          collections_.emplace(std::pair(bars, first), Replayed<Space>(config_.graph.mode != "eager", report)).first;
    }
    piece->second.run(space_, [&] {
      return [space = space_, arguments = collect_arguments_, learner = *learner_, buffers = collect_buffers_,
              ring = replay_.ring, n_step = rules_.gather.n_step, bars, first] {
        if (first) kernels::refresh_new_priority(space, ring);
        for (std::int64_t i = 0; i < bars; ++i) collect_bar(space, arguments, learner, buffers, ring, n_step);
      };
    });
  }
  progress_.bar_steps += bar_steps * replay_.ring.envs;
}

template <class Space>
void FoldTrainer<Space>::prefill() {
  const InWindow window(Window::fold);
  prepare_rules(-1, 1, reward_scale_);
  const kernels::Exploration exploration = collect_arguments_.exploration;
  collect_arguments_.exploration = kernels::Exploration::epsilon;
  collect_arguments_.epsilon = Schedule::constant(1.0);
  kernels::begin_episodes(space_, collect_arguments_, collect_buffers_);
  const std::int64_t envs = replay_.ring.envs;
  const std::int64_t least = std::max<std::int64_t>(config_.replay.learning_starts, config_.train.batch);
  collect(std::min<std::int64_t>((least + envs - 1) / envs + config_.agent.n_step, replay_.ring.slots));
  collect_arguments_.exploration = exploration;
  collections_.clear();
  space_.fence("vulpes::fold_trainer::prefill");

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
  begin_training();
  io::log()->info("fold {}: {} rows collected at random; reward scale {:.4g}, support [{:.4g}, {:.4g}]", fold_.number,
                  progress_.bar_steps, reward_scale_, vmin, vmax);
}

template <class Space>
std::optional<std::vector<EpochResult>> FoldTrainer<Space>::run_epoch(const std::function<bool()>& stop) {
  const std::int64_t first = progress_.epoch * config_.train.epoch_steps, resumed = progress_.steps;
  const std::int64_t last = std::min(config_.train.steps, first + config_.train.epoch_steps);
  const double began = seconds_now();
  const std::int64_t bars_before = progress_.bar_steps;
  while (progress_.steps < last) {
    if (stop()) return std::nullopt;
    collect(config_.train.collect_steps);
    const std::int64_t updates = std::min(config_.train.updates, last - progress_.steps);
    for (std::int64_t i = 0; i < updates; ++i) runner_->run(rules_.periodic(progress_.steps + i));
    progress_.steps += updates;
  }
  std::optional<InWindow> window(Window::epoch);
  ++progress_.epoch;
  // A device says so with the epoch's figures, which are read when its next epoch is under way.
  if constexpr (is_host_space<Space>) {
    if (learner_->state().now.stopped) return std::nullopt;
  }
  const double seconds = seconds_now() - began;

  std::vector<EpochResult> results;
  const auto report = [&] {
    if (!evaluate_open_epoch()) return false;
    results.push_back(report_open_epoch());
    return true;
  };
  if (validator_) validator_->submit(space_, validated_parameters());
  if (open_ && !report()) return std::nullopt;
  OpenEpoch& open = open_.emplace();
  open.number = progress_.epoch;
  open.first = first;
  open.steps = progress_.steps;
  open.bar_steps = progress_.bar_steps;
  open.steps_a_second = static_cast<double>(progress_.steps - resumed) / seconds;
  open.bar_steps_a_second = static_cast<double>(progress_.bar_steps - bars_before) / seconds;
  figures_.queue(space_);
  progress_.finished = progress_.steps >= config_.train.steps ||
                       (config_.train.patience > 0 && progress_.epochs_without_gain >= config_.train.patience);
  if (!progress_.finished) return results;
  window.reset();
  const InWindow end(Window::fold);
  if (!report()) return std::nullopt;
  return results;
}

template <class Space>
bool FoldTrainer<Space>::evaluate_open_epoch() {
  if (!open_->record.empty()) return true;
  figures_.wait();
  if (validator_) open_->validation = validator_->collect();
  if (figures_.figure(kernels::stopped_figure) != 0) return false;
  open_->record = make_record();
  return true;
}

template <class Space>
EpochResult FoldTrainer<Space>::report_open_epoch() {
  OpenEpoch& e = *open_;
  EpochResult result;
  bool best = progress_.finished;  // without validation the last parameters are
  if (e.validation) {
    best = progress_.best_step == 0 || e.validation->score > progress_.best_score;
    progress_.epochs_without_gain = best ? 0 : progress_.epochs_without_gain + 1;
    if (best) progress_.best_score = e.validation->score;
  }
  if (best) {
    progress_.best_step = e.steps;
    result.best =
        policy(e.validation ? std::move(e.validation->parameters) : download(validated_parameters()), e.steps);
  }
  result.record = std::move(e.record);
  for (auto& [name, value] : result.record) {
    if (name == "best") value = best ? 1.0 : 0.0;
  }
  open_.reset();
  return result;
}

template <class Space>
io::Record FoldTrainer<Space>::make_record() const {
  const OpenEpoch& e = *open_;
  const auto figure = [&](int k) { return figures_.figure(k); };
  const EpochMeans means = figures_.means(e.first, e.steps);
  const std::int64_t step = e.steps;
  if (means.skipped() > 0) {
    const bool spike = figure(kernels::fault_figure) == static_cast<double>(kernels::Fault::spike);
    io::log()->warn("fold {}, step {}: {} steps of this epoch were refused, the last one, step {}, for {}",
                    fold_.number, step, means.skipped(), figure(kernels::fault_iteration_figure),
                    spike ? "its gradient norm" : "a NaN or Inf");
  }
  const double clipped_mass = means.mean(kernels::clipped_out).value_or(0);
  if (clipped_mass > 0.05) {
    io::log()->warn(
        "fold {}, step {}: {:.1f} % of the target mass was clipped at the support's ends; widen agent.vmin and "
        "agent.vmax",
        fold_.number, step, 100 * clipped_mass);
  }
  const auto loss = [&](bool on, int k) { return on ? means.mean(k) : std::nullopt; };
  const auto validation = [&](double Validation::*value, double scale = 1) {
    return e.validation ? std::optional<double>(scale * (*e.validation).*value) : std::nullopt;
  };
  io::Record record = {{"fold", fold_.number},
                       {"epoch", static_cast<double>(e.number)},
                       {"step", static_cast<double>(step)},
                       {"bar_steps", static_cast<double>(e.bar_steps)},
                       {"loss", means.mean(kernels::loss_out)},
                       {"loss_c51", means.mean(kernels::c51_out)},
                       {"loss_mse", means.mean(kernels::mse_out)},
                       {"kl", loss(rules_.blend(e.first) > 0, kernels::kl_out)},
                       {"loss_cql", loss(config_.cql.weight > 0, kernels::cql_out)},
                       {"loss_auxiliary", loss(config_.auxiliary.weight > 0, kernels::auxiliary_out)},
                       {"loss_diversity", loss(config_.diversity.weight > 0, kernels::diversity_out)},
                       {"delta", means.mean(kernels::delta_out)},
                       {"q_mean", means.mean(kernels::q_out)},
                       {"q_sd", means.q_sd()},
                       {"next_q_mean", means.mean(kernels::next_q_out)},
                       {"clipped_target_mass", means.mean(kernels::clipped_out)},
                       {"gradient_norm", means.mean(kernels::gradient_norm_out)},
                       {"clip_share", means.clip_share()},
                       {"skipped_steps", static_cast<double>(means.skipped())},
                       {"rollbacks", figure(kernels::rollbacks_figure)},
                       {"learning_rate", rules_.optimiser.rate(step) * figure(kernels::rate_multiplier_figure)},
                       {"epsilon", collect_arguments_.epsilon(step)},
                       {"beta", rules_.gather.beta(step)},
                       {"blend", rules_.blend(step)},
                       {"auxiliary_weight", config_.auxiliary.weight > 0
                                                ? std::optional<double>(rules_.auxiliary.weight(step) *
                                                                        figure(kernels::auxiliary_multiplier_figure))
                                                : std::nullopt},
                       {"largest_priority", figure(kernels::largest_figure) / kernels::priority_one},
                       {"priority_saturations", figure(kernels::saturated_figure)},
                       {"priority_rejections", figure(kernels::rejected_figure)},
                       {"validation_growth_bp", validation(&Validation::score, 1e4)},
                       {"validation_turnover", validation(&Validation::turnover)},
                       {"validation_absolute_exposure", validation(&Validation::absolute_exposure)},
                       {"best", 0.0},
                       {"updates_accepted", figure(kernels::adam_t_figure)},
                       {"steps_per_second", e.steps_a_second},
                       {"bar_steps_per_second", e.bar_steps_a_second},
                       {"validation_seconds", validation(&Validation::seconds)},
                       {"memory_mb", resident_megabytes()}};
  for (int g = 0; g < kernels::tensor_groups; ++g) {
    record.emplace_back(std::string("gradient_norm_") + kernels::tensor_group_names[g],
                        means.mean(kernels::group_norm_out + g));
  }
  for (int g = 0; g < kernels::tensor_groups; ++g) {
    record.emplace_back(std::string("weight_norm_") + kernels::tensor_group_names[g],
                        figure(kernels::weight_norm_figure + g));
  }
  if (config_.pruning.sparsity > 0) {
    double weights = 0;
    for (const TensorSlice& t : learner_->network.layout.tensors()) weights += t.is_weight ? t.size() : 0;
    record.emplace_back("sparsity", figure(kernels::pruned_figure) / weights);
  }
  for (std::size_t i = 0; i < learner_->spectral.names.size(); ++i) {
    record.emplace_back("sigma_" + learner_->spectral.names[i], figures_.sigma(i));
  }
  if (config_.causal.every > 0) {
    // The last measurement of the epoch, if there was one.
    const std::int64_t last_one = (step - 1) / config_.causal.every;
    const bool measured = last_one * config_.causal.every >= e.first;
    for (std::size_t g = 0; g < groups_.names.size(); ++g) {
      record.emplace_back("q_delta_" + groups_.names[g],
                          measured ? std::optional<double>(figures_.delta(last_one, g)) : std::nullopt);
    }
  }
  return record;
}

template <class Space>
kernels::StepCounters FoldTrainer<Space>::counters() const {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), learner_->state)().now;
}

template <class Space>
agent::Policy FoldTrainer<Space>::policy(std::vector<float> parameters, std::int64_t step) const {
  agent::Policy p;
  p.config = config_;
  p.shape = learner_->network.shape;
  p.vmin = vmin_;
  p.vmax = vmax_;
  p.reward_scale = reward_scale_;
  p.feature_names = data_.features.names;
  p.normaliser = normaliser_;
  p.parameters = std::move(parameters);
  p.step = step;
  p.fold = fold_.number;
  p.score = progress_.best_score;
  p.seen = seen_;
  return p;
}

template <class Space>
template <class F>
void FoldTrainer<Space>::visit_arrays(const F& f) const {
  f("training/replay/rows", replay_.ring.rows);
  f("training/replay/leaves", replay_.ring.tree.leaves);
  f("training/replay/cursor", replay_.ring.cursor);
  f("training/replay/counts", replay_.counts);
  f("training/replay/smallest", buffers_.draws.smallest);
  f("training/environments", collect_buffers_.environments);
  f("training/records", buffers_.records);
  if (buffers_.causal.records.size() > 0) f("training/causal", buffers_.causal.records);
}

template <class Space>
void FoldTrainer<Space>::save(const std::string& path, std::int64_t metric_rows) {
  if (open_ && !evaluate_open_epoch()) open_.reset();
  space_.fence("vulpes::fold_trainer::save");
  io::H5Writer file(path);
  agent::write_policy(file, policy());
  const ParameterLayout& layout = learner_->network.layout;
  file.write_string("training/numerics", host_numerics_description());
  learner_->visit([&](const char* name, const auto& buffer) { agent::write_tensors(file, name, layout, buffer); },
                  [&](const char* name, const auto& array) { write_array(file, name, array); });
  visit_arrays([&](const char* name, const auto& array) { write_array(file, name, array); });
  file.write_scalar("training/progress/epoch", progress_.epoch);
  file.write_scalar("training/progress/steps", progress_.steps);
  file.write_scalar("training/progress/bar_steps", progress_.bar_steps);
  file.write_scalar("training/progress/epochs_without_gain", progress_.epochs_without_gain);
  file.write_scalar("training/progress/best_step", progress_.best_step);
  file.write_scalar("training/progress/best_score", progress_.best_score);
  file.write_scalar<std::uint8_t>("training/progress/finished", progress_.finished);
  file.write_scalar("training/metric_rows", metric_rows);
  if (open_) write_open_epoch(file);
  file.finish();
}

template <class Space>
void FoldTrainer<Space>::write_open_epoch(io::H5Writer& file) const {
  const OpenEpoch& e = *open_;
  nlohmann::json record = nlohmann::json::array();
  for (const auto& [name, value] : e.record) {
    record.push_back({name, value ? nlohmann::json(*value) : nlohmann::json(nullptr)});
  }
  file.write_string("training/open/record", record.dump());
  file.write_scalar("training/open/steps", e.steps);
  if (!e.validation) return;
  file.write_scalar("training/open/score", e.validation->score);
  file.write("training/open/parameters", e.validation->parameters);
}

template <class Space>
void FoldTrainer<Space>::read_open_epoch(const io::H5Reader& file) {
  OpenEpoch& e = open_.emplace();
  for (const auto& field : nlohmann::json::parse(file.read_string("training/open/record"))) {
    e.record.emplace_back(field.at(0).get<std::string>(),
                          field.at(1).is_null() ? std::nullopt : std::optional<double>(field.at(1).get<double>()));
  }
  e.steps = file.read_scalar<std::int64_t>("training/open/steps");
  if (!file.has("training/open/score")) return;
  e.validation.emplace();
  e.validation->score = file.read_scalar<double>("training/open/score");
  e.validation->parameters = file.read<float>("training/open/parameters");
}

template <class Space>
std::int64_t FoldTrainer<Space>::load(const std::string& path) {
  const InWindow window(Window::fold);
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
  learner_->visit([&](const char* name, const auto& buffer) { agent::read_tensors(file, name, layout, buffer); },
                  [&](const char* name, const auto& array) { read_array(file, name, array); });
  visit_arrays([&](const char* name, const auto& array) { read_array(file, name, array); });
  kernels::rebuild(space_, replay_.ring.tree);
  kernels::write_states(space_, collect_arguments_, collect_buffers_);
  progress_.epoch = file.read_scalar<std::int64_t>("training/progress/epoch");
  progress_.steps = file.read_scalar<std::int64_t>("training/progress/steps");
  progress_.bar_steps = file.read_scalar<std::int64_t>("training/progress/bar_steps");
  progress_.epochs_without_gain = file.read_scalar<std::int64_t>("training/progress/epochs_without_gain");
  progress_.best_step = file.read_scalar<std::int64_t>("training/progress/best_step");
  progress_.best_score = file.read_scalar<double>("training/progress/best_score");
  progress_.finished = file.read_scalar<std::uint8_t>("training/progress/finished") != 0;
  if (file.has("training/open/record")) read_open_epoch(file);
  begin_training();
  return file.read_scalar<std::int64_t>("training/metric_rows");
}

#define INSTANTIATE(S) template class FoldTrainer<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
