// The configuration: every setting with its default, meaning and bounds in one place.
//
// A section is a plain struct that the part it configures takes as an argument. `visit_settings` names each
// setting once; reading TOML, `--set`, `--help`, checks and the resolved `config.toml` all go through it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vulpes::io {

struct RunConfig {
  std::int64_t seed = 1;
  std::string device = "default";
};

struct DataConfig {
  std::string file;
  std::string duplicates = "error";
  std::int64_t bar_seconds = 0;
  double bars_a_year = 0;
};

/// Built-in markets (docs/learning.md), log price units: a random walk with a mean-reverting component, or regimes of
/// trend, range and turbulence.
struct SyntheticConfig {
  std::string kind = "mean_reverting";
  double phi = 0.85;
  double component_sd = 0.008;
  double walk_sd = 0.0003;
  std::int64_t substeps = 16;
  std::int64_t run_in = 512;
  std::int64_t train_bars = 131072;
  std::int64_t validation_bars = 16384;
  std::int64_t test_bars = 32768;
  std::int64_t test_paths = 4;
  std::int64_t optimum_draws = 32768;
  std::int64_t optimum_points = 61;
  double regime_bars = 64;
  double regime_trend = 0.001;
  double regime_sd = 0.003;
};

struct FeaturesConfig {
  std::vector<std::int64_t> return_horizons = {1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<std::int64_t> volatility_windows = {16, 64};
  std::vector<std::int64_t> mean_windows = {16, 64, 128};
  std::int64_t range_window = 16;
  std::int64_t volume_window = 64;
  std::int64_t rsi_window = 14;
  std::vector<std::int64_t> macd = {12, 26, 9};
  std::int64_t bollinger_window = 20;
  bool calendar = true;
  double clip = 5.0;
};

/// Costs and limits of the account; basis points of traded notional, fractions of equity.
struct AccountConfig {
  double taker_fee_bp = 10.0;
  double maker_fee_bp = 4.0;
  double half_spread_bp = 2.0;
  double passive_atr = 0.5;
  std::int64_t atr_window = 14;
  double leverage_cap = 1.0;
  double ruin_fraction = 0.2;
  double initial_equity = 100000.0;
};

struct RewardConfig {
  double scale = 0;
  double inventory_penalty = 0;
  double goal_bonus = 0;
};

/// Log growth wished for over an episode; in effect when reward.goal_bonus or hindsight.share is not 0.
struct GoalConfig {
  double growth = 0.1;
  double spread = 0;
  double clip = 0.5;
};

struct HindsightConfig {
  double share = 0;
  std::int64_t horizon = 64;
  bool update_priorities = false;
};

struct NetworkConfig {
  std::int64_t hidden1 = 128;
  std::int64_t hidden2 = 64;
  std::int64_t residual_blocks = 1;
  std::int64_t head_hidden = 64;
  std::int64_t atoms = 51;
  double survival = 1;
};

struct AgentConfig {
  double gamma = 0.95;
  std::int64_t n_step = 1;
  bool double_dqn = true;
  std::string target = "mean";
  double vmin = 0;
  double vmax = 0;
  std::int64_t warmup_steps = 1000;
  std::int64_t blend_steps = 1000;
  bool scale_trunk_gradient = false;
};

/// Losses besides the temporal-difference one; weight 0: off.
struct CqlConfig {
  double weight = 0;
};
struct DiversityConfig {
  double weight = 0;
};
struct AuxiliaryConfig {
  double weight = 0;
  double final_fraction = 0;
  double decay_fraction = 0.5;
  double temperature = 0.1;
  double label_temperature = 0.5;
  double risk = 0;
};

/// Effect of each feature group on Q (docs/learning.md); every = 0: off.
struct CausalConfig {
  std::int64_t every = 0;
  std::int64_t rows = 256;
};

struct ReplayConfig {
  std::int64_t rows = 131072;
  std::int64_t learning_starts = 4096;
  double alpha = 0.5;
  double beta = 0.4;
  double epsilon = 1e-3;
};

struct CollectConfig {
  std::int64_t envs = 128;
  std::int64_t window = 512;
  std::string explore = "epsilon";
  double epsilon_start = 1.0;
  double epsilon_end = 0.05;
  double epsilon_fraction = 0.2;
  double temperature = 0.1;
};

struct OptimiserConfig {
  double learning_rate = 1e-3;
  double final_fraction = 0.1;
  std::int64_t ramp_steps = 200;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-5;
  double weight_decay = 0;
  double clip_norm = 10;
  double tau = 0.01;
  double spectral_trunk = 0;
  double spectral_output = 0;
};

/// Magnitude pruning; sparsity = 0: off.
struct PruningConfig {
  double sparsity = 0;
  double begin_fraction = 0.2;
  double end_fraction = 0.7;
  std::int64_t every = 100;
};

/// What happens to updates that would do harm.
struct GuardConfig {
  double spike_factor = 0;
  double spike_floor = 10;
  double norm_rate = 0.01;
  std::int64_t patience = 20;
  std::int64_t max_rollbacks = 3;
  std::int64_t snapshot_steps = 100;
};

/// Faults to try the guard with; refused unless debug.inject is true.
struct DebugConfig {
  bool inject = false;
};
struct InjectConfig {
  std::int64_t nan_step = -1;
  std::int64_t nan_steps = 1;
  std::int64_t grad_spike_step = -1;
  std::int64_t grad_spike_steps = 1;
  double grad_spike_factor = 1e6;
  std::string capture = "none";
  std::int64_t captures = 1;
};

/// How devices that have graphs launch a step.
struct GraphConfig {
  std::string mode = "mega";
};

/// Precision of matrix products where a device has a choice.
struct GemmConfig {
  std::string forward = "tf32";
  std::string backward = "fp32";
};

struct TrainConfig {
  std::int64_t steps = 20000;
  std::int64_t batch = 256;
  std::int64_t epoch_steps = 1000;
  std::int64_t updates = 10;
  std::int64_t collect_steps = 10;
  std::int64_t patience = 0;
  std::int64_t keep = 3;
  std::int64_t checkpoint_epochs = 1;
  std::string evaluate_with = "target";
  bool validate = true;
};

struct FoldsConfig {
  std::string kind = "single";
  std::int64_t count = 1;
  std::int64_t only = 0;
  double validation_fraction = 0.15;
  double test_fraction = 0.15;
  std::int64_t embargo = 0;
};

struct Config {
  RunConfig run;
  DataConfig data;
  SyntheticConfig synthetic;
  FeaturesConfig features;
  AccountConfig account;
  RewardConfig reward;
  GoalConfig goal;
  HindsightConfig hindsight;
  NetworkConfig network;
  AgentConfig agent;
  CqlConfig cql;
  DiversityConfig diversity;
  AuxiliaryConfig auxiliary;
  CausalConfig causal;
  ReplayConfig replay;
  CollectConfig collect;
  OptimiserConfig optimiser;
  PruningConfig pruning;
  GuardConfig guard;
  TrainConfig train;
  FoldsConfig folds;
  DebugConfig debug;
  InjectConfig inject;
  GraphConfig graph;
  GemmConfig gemm;
};

/// Allowed interval of a number, ends included.
struct Bounds {
  double low = -1e300;
  double high = 1e300;
};
/// Allowed values of a string; empty: any.
using Choices = std::vector<std::string>;

/// Calls `v(name, field, meaning, Bounds or Choices)` for every setting, in the order of `config.toml`.
template <class ConfigRef, class Visitor>
void visit_settings(ConfigRef& c, Visitor&& v) {
  constexpr double most = 1e300;
  v("run.seed", c.run.seed, "seed of every random stream", Bounds{0, 4294967295.0});
  v("run.device", c.run.device, "where to train", Choices{"default", "serial", "openmp", "cuda"});

  v("data.file", c.data.file, "bars (CSV or Parquet); empty: the synthetic market", Choices{});
  v("data.duplicates", c.data.duplicates, "bars with the same time", Choices{"error", "first", "last"});
  v("data.bar_seconds", c.data.bar_seconds, "bar length in seconds; 0: the most frequent distance", Bounds{0, 1e9});
  v("data.bars_a_year", c.data.bars_a_year, "for annualised figures; 0: from the timestamps", Bounds{0, 1e9});

  v("synthetic.kind", c.synthetic.kind, "built-in market", Choices{"mean_reverting", "regimes"});
  v("synthetic.phi", c.synthetic.phi, "AR(1) coefficient a bar of the mean-reverting component", Bounds{0, 0.9999});
  v("synthetic.component_sd", c.synthetic.component_sd, "its stationary standard deviation (log price)", Bounds{0, 1});
  v("synthetic.walk_sd", c.synthetic.walk_sd, "random walk's standard deviation a bar (log price)", Bounds{1e-9, 1});
  v("synthetic.substeps", c.synthetic.substeps, "prices within a bar", Bounds{2, 1024});
  v("synthetic.run_in", c.synthetic.run_in, "bars before the first one used", Bounds{1, 1e6});
  v("synthetic.train_bars", c.synthetic.train_bars, "training bars", Bounds{64, 1e9});
  v("synthetic.validation_bars", c.synthetic.validation_bars, "validation bars", Bounds{64, 1e9});
  v("synthetic.test_bars", c.synthetic.test_bars, "bars of each test path", Bounds{64, 1e9});
  v("synthetic.test_paths", c.synthetic.test_paths, "independent test paths", Bounds{1, 4096});
  v("synthetic.optimum_draws", c.synthetic.optimum_draws, "draws of the reference's value iteration", Bounds{256, 1e7});
  v("synthetic.optimum_points", c.synthetic.optimum_points, "grid points of the filtered component", Bounds{5, 1001});

  v("synthetic.regime_bars", c.synthetic.regime_bars, "mean length of a regime in bars", Bounds{2, 1e6});
  v("synthetic.regime_trend", c.synthetic.regime_trend, "drift a bar in a trend (log price)", Bounds{0, 1});
  v("synthetic.regime_sd", c.synthetic.regime_sd, "standard deviation of a bar in a calm regime (log price)",
    Bounds{1e-9, 1});

  v("features.return_horizons", c.features.return_horizons, "log returns over so many bars", Bounds{1, 1e5});
  v("features.volatility_windows", c.features.volatility_windows, "realised volatility over so many bars",
    Bounds{2, 1e5});
  v("features.mean_windows", c.features.mean_windows, "distance of log close from its mean over so many bars",
    Bounds{2, 1e5});
  v("features.range_window", c.features.range_window, "mean high-low range over so many bars", Bounds{1, 1e5});
  v("features.volume_window", c.features.volume_window, "volume z-score over so many bars", Bounds{2, 1e5});
  v("features.rsi_window", c.features.rsi_window, "RSI window (Wilder)", Bounds{1, 1e5});
  v("features.macd", c.features.macd, "MACD spans: fast, slow, signal", Bounds{1, 1e5});
  v("features.bollinger_window", c.features.bollinger_window, "Bollinger position window", Bounds{2, 1e5});
  v("features.calendar", c.features.calendar, "time of day and week as sine and cosine", Choices{});
  v("features.clip", c.features.clip, "clip of normalised features", Bounds{0.1, 1e6});

  v("account.taker_fee_bp", c.account.taker_fee_bp, "fee of market orders and gapped limits (basis points)",
    Bounds{-100, 1000});
  v("account.maker_fee_bp", c.account.maker_fee_bp, "fee of resting orders (basis points; negative: a rebate)",
    Bounds{-100, 1000});
  v("account.half_spread_bp", c.account.half_spread_bp, "half spread paid by market orders (basis points)",
    Bounds{0, 1000});
  v("account.passive_atr", c.account.passive_atr, "distance of passive orders from the close in ATR", Bounds{0, 100});
  v("account.atr_window", c.account.atr_window, "ATR window (exponential, 1 / window)", Bounds{1, 1e5});
  v("account.leverage_cap", c.account.leverage_cap, "largest exposure that an order may reach", Bounds{0.01, 100});
  v("account.ruin_fraction", c.account.ruin_fraction, "equity fraction of the start at which an episode ends",
    Bounds{1e-6, 0.999});
  v("account.initial_equity", c.account.initial_equity, "equity at the start", Bounds{1e-6, 1e15});

  v("reward.scale", c.reward.scale, "reward per log return; 0: 0.45 / standard deviation of a bar's return",
    Bounds{0, 1e9});
  v("reward.inventory_penalty", c.reward.inventory_penalty, "times exposure squared, a bar", Bounds{0, 1e6});
  v("reward.goal_bonus", c.reward.goal_bonus, "paid when an episode's log growth first reaches its goal; 0: off",
    Bounds{0, 1e6});

  v("goal.growth", c.goal.growth, "log growth wished for over an episode", Bounds{-10, 10});
  v("goal.spread", c.goal.spread, "training goals are drawn from growth - spread ... growth + spread", Bounds{0, 10});
  v("goal.clip", c.goal.clip, "clip of the goal gap that the network sees", Bounds{1e-6, 10});

  v("hindsight.share", c.hindsight.share, "share of rows relabelled with a goal that was reached; 0: off",
    Bounds{0, 1});
  v("hindsight.horizon", c.hindsight.horizon, "bars ahead within which the donor row lies", Bounds{1, 65535});
  v("hindsight.update_priorities", c.hindsight.update_priorities, "relabelled rows write their priority back",
    Choices{});

  v("network.hidden1", c.network.hidden1, "width of the first trunk layer", Bounds{1, 65536});
  v("network.hidden2", c.network.hidden2, "width of the second trunk layer", Bounds{1, 65536});
  v("network.residual_blocks", c.network.residual_blocks, "residual blocks", Bounds{0, 64});
  v("network.head_hidden", c.network.head_hidden, "hidden width of each head", Bounds{1, 65536});
  v("network.atoms", c.network.atoms, "atoms of the value distribution", Bounds{2, 512});
  v("network.survival", c.network.survival, "stochastic depth: probability that the last residual block stays; 1: off",
    Bounds{0.01, 1});

  v("agent.gamma", c.agent.gamma, "discount a bar", Bounds{0, 0.99999});
  v("agent.n_step", c.agent.n_step, "bars of a return before bootstrapping", Bounds{1, 64});
  v("agent.double_dqn", c.agent.double_dqn, "choose the next action with the online network", Choices{});
  v("agent.target", c.agent.target, "target distribution: mean over branches or each its own",
    Choices{"mean", "per_branch"});
  v("agent.vmin", c.agent.vmin, "lowest atom; vmin = vmax = 0: from the rewards (support rule)", Bounds{-most, most});
  v("agent.vmax", c.agent.vmax, "highest atom", Bounds{-most, most});
  v("agent.warmup_steps", c.agent.warmup_steps, "steps with the expected-value loss", Bounds{0, 1e12});
  v("agent.blend_steps", c.agent.blend_steps, "steps from it to the C51 loss", Bounds{0, 1e12});
  v("agent.scale_trunk_gradient", c.agent.scale_trunk_gradient, "scale the trunk's gradient by 1 / 4 (one / heads)",
    Choices{});

  v("cql.weight", c.cql.weight, "conservative Q-learning: weight of its loss; 0: off", Bounds{0, 1e3});
  v("diversity.weight", c.diversity.weight, "weight of the loss on similar branch heads; 0: off", Bounds{0, 1e3});
  v("auxiliary.weight", c.auxiliary.weight, "weight of the exposure auxiliary loss at the start; 0: off",
    Bounds{0, 1e3});
  v("auxiliary.final_fraction", c.auxiliary.final_fraction, "share of that weight at the end of the decay",
    Bounds{0, 1});
  v("auxiliary.decay_fraction", c.auxiliary.decay_fraction, "share of the steps that the decay takes", Bounds{0, 1});
  v("auxiliary.temperature", c.auxiliary.temperature, "temperature of the softmax over Q(exposure)", Bounds{1e-6, 1e6});
  v("auxiliary.label_temperature", c.auxiliary.label_temperature,
    "temperature of the soft label, in standard deviations of a bar's return", Bounds{1e-6, 1e6});
  v("auxiliary.risk", c.auxiliary.risk, "risk aversion of the soft label", Bounds{0, 1e6});

  v("causal.every", c.causal.every, "steps between measurements of each feature group's effect on Q; 0: off",
    Bounds{0, 1e12});
  v("causal.rows", c.causal.rows, "rows of a measurement", Bounds{16, 65536});

  v("replay.rows", c.replay.rows, "rows of the replay ring (rounded up to whole time slots)", Bounds{1, 4e9});
  v("replay.learning_starts", c.replay.learning_starts, "rows collected at random before the first update",
    Bounds{1, 4e9});
  v("replay.alpha", c.replay.alpha, "priority exponent", Bounds{0, 2});
  v("replay.beta", c.replay.beta, "importance exponent at the start (1 at the end)", Bounds{0, 1});
  v("replay.epsilon", c.replay.epsilon, "added to each priority", Bounds{1e-12, 1e3});

  v("collect.envs", c.collect.envs, "parallel accounts", Bounds{1, 1e6});
  v("collect.window", c.collect.window, "bars of a training episode", Bounds{2, 65535});
  v("collect.explore", c.collect.explore, "exploration", Choices{"epsilon", "softmax"});
  v("collect.epsilon_start", c.collect.epsilon_start, "share of random actions at first", Bounds{0, 1});
  v("collect.epsilon_end", c.collect.epsilon_end, "and at last", Bounds{0, 1});
  v("collect.epsilon_fraction", c.collect.epsilon_fraction, "share of the steps in between", Bounds{0, 1});
  v("collect.temperature", c.collect.temperature, "temperature of softmax exploration", Bounds{1e-6, 1e6});

  v("optimiser.learning_rate", c.optimiser.learning_rate, "peak learning rate", Bounds{0, 10});
  v("optimiser.final_fraction", c.optimiser.final_fraction, "share of it at the last step", Bounds{0, 1});
  v("optimiser.ramp_steps", c.optimiser.ramp_steps, "steps up to the peak", Bounds{0, 1e12});
  v("optimiser.beta1", c.optimiser.beta1, "AdamW beta 1", Bounds{0, 0.99999});
  v("optimiser.beta2", c.optimiser.beta2, "AdamW beta 2", Bounds{0, 0.9999999});
  v("optimiser.epsilon", c.optimiser.epsilon, "AdamW epsilon", Bounds{1e-12, 1});
  v("optimiser.weight_decay", c.optimiser.weight_decay, "decoupled weight decay", Bounds{0, 10});
  v("optimiser.clip_norm", c.optimiser.clip_norm, "largest gradient norm", Bounds{1e-9, 1e30});
  v("optimiser.tau", c.optimiser.tau, "Polyak rate of the target network", Bounds{0, 1});
  v("optimiser.spectral_trunk", c.optimiser.spectral_trunk,
    "largest spectral norm of trunk and hidden matrices; 0: off", Bounds{0, 1e6});
  v("optimiser.spectral_output", c.optimiser.spectral_output, "the same of output matrices; 0: off", Bounds{0, 1e6});

  v("pruning.sparsity", c.pruning.sparsity, "share of each weight matrix that is pruned at the end; 0: off",
    Bounds{0, 0.999});
  v("pruning.begin_fraction", c.pruning.begin_fraction, "share of the steps before the first pruning", Bounds{0, 1});
  v("pruning.end_fraction", c.pruning.end_fraction, "share of the steps at which it reaches its sparsity",
    Bounds{0, 1});
  v("pruning.every", c.pruning.every, "steps between prunings", Bounds{1, 1e9});

  v("guard.spike_factor", c.guard.spike_factor,
    "skip a step whose gradient norm exceeds so many times its running mean; 0: off", Bounds{0, 1e9});
  v("guard.spike_floor", c.guard.spike_floor, "but never one with a norm up to this", Bounds{0, 1e30});
  v("guard.norm_rate", c.guard.norm_rate, "rate of the running mean of the norm", Bounds{1e-6, 1});
  v("guard.patience", c.guard.patience, "skipped steps in a row before a rollback; 0: never", Bounds{0, 1e6});
  v("guard.max_rollbacks", c.guard.max_rollbacks, "rollbacks before training stops", Bounds{0, 1e6});
  v("guard.snapshot_steps", c.guard.snapshot_steps, "updates between snapshots for a rollback", Bounds{1, 1e9});

  v("train.steps", c.train.steps, "gradient steps", Bounds{1, 1e12});
  v("train.batch", c.train.batch, "rows of a batch", Bounds{1, 1e6});
  v("train.epoch_steps", c.train.epoch_steps, "steps between validations", Bounds{1, 1e9});
  v("train.updates", c.train.updates, "gradient steps after each collection", Bounds{1, 1e6});
  v("train.collect_steps", c.train.collect_steps, "bar-steps of every account in each collection", Bounds{1, 1e6});
  v("train.patience", c.train.patience,
    "epochs without a better validation before stopping, which is known an epoch later; 0: never", Bounds{0, 1e6});
  v("train.keep", c.train.keep, "full checkpoints kept", Bounds{1, 1000});
  v("train.checkpoint_epochs", c.train.checkpoint_epochs, "epochs between full checkpoints", Bounds{1, 1e6});
  v("train.evaluate_with", c.train.evaluate_with, "parameters that are validated and kept",
    Choices{"target", "online"});
  v("train.validate", c.train.validate, "validate after each epoch; else the last parameters are the best", Choices{});

  v("folds.kind", c.folds.kind, "walk-forward folds", Choices{"single", "rolling", "anchored"});
  v("folds.count", c.folds.count, "number of folds", Bounds{1, 1000});
  v("folds.only", c.folds.only, "run this fold alone (1 ... count); 0: all", Bounds{0, 1000});
  v("folds.validation_fraction", c.folds.validation_fraction, "validation share of a fold's bars", Bounds{0.01, 0.9});
  v("folds.test_fraction", c.folds.test_fraction, "test share of a fold's bars", Bounds{0.01, 0.9});
  v("folds.embargo", c.folds.embargo, "bars between ranges; 0: the least (n_step + 1)", Bounds{0, 1e6});

  v("debug.inject", c.debug.inject, "allow [inject]", Choices{});
  v("inject.nan_step", c.inject.nan_step, "first step whose loss becomes NaN; -1: none", Bounds{-1, 1e12});
  v("inject.nan_steps", c.inject.nan_steps, "how many such steps", Bounds{1, 1e12});
  v("inject.grad_spike_step", c.inject.grad_spike_step, "first step whose gradient is multiplied; -1: none",
    Bounds{-1, 1e12});
  v("inject.grad_spike_steps", c.inject.grad_spike_steps, "how many such steps", Bounds{1, 1e12});
  v("inject.grad_spike_factor", c.inject.grad_spike_factor, "by how much", Bounds{0, 1e30});
  v("inject.capture", c.inject.capture, "phase in which recording a graph fails",
    Choices{"none", "begin", "body", "end", "instantiate", "upload", "launch"});
  v("inject.captures", c.inject.captures, "how many recordings of a fold fail", Bounds{1, 1e12});
  v("graph.mode", c.graph.mode, "a training step as one graph, as one for each phase, or kernel by kernel (CUDA)",
    Choices{"mega", "split", "eager"});
  v("gemm.forward", c.gemm.forward, "precision of the forward products (CUDA)", Choices{"tf32", "fp32"});
  v("gemm.backward", c.gemm.backward, "precision of the backward products (CUDA)", Choices{"fp32", "tf32"});
}

}  // namespace vulpes::io
