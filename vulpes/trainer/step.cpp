#include "vulpes/trainer/step.hpp"

#include "vulpes/core/scope.hpp"
#include "vulpes/kernels/diversity.hpp"

namespace vulpes::trainer {
namespace {

/// Iteration after the given share of all steps.
std::int64_t share_of_steps(const io::Config& c, double share) {
  return static_cast<std::int64_t>(share * static_cast<double>(c.train.steps));
}

kernels::GuardRules guard_rules(const io::Config& c) {
  kernels::GuardRules g;
  g.spike_factor = c.guard.spike_factor;
  g.spike_floor = c.guard.spike_floor;
  g.norm_rate = c.guard.norm_rate;
  g.armed_at = static_cast<std::uint64_t>(c.agent.warmup_steps + c.agent.blend_steps);
  g.patience = static_cast<std::uint32_t>(c.guard.patience);
  g.max_rollbacks = static_cast<std::uint32_t>(c.guard.max_rollbacks);
  g.snapshot_every = c.guard.patience > 0 ? static_cast<std::uint64_t>(c.guard.snapshot_steps) : 0;
  return g;
}

kernels::Auxiliary<float> auxiliary_loss(const io::Config& c, double return_sd) {
  kernels::Auxiliary<float> a;
  a.on = c.auxiliary.weight > 0;
  a.weight = Schedule::linear(c.auxiliary.weight, c.auxiliary.weight * c.auxiliary.final_fraction,
                              share_of_steps(c, c.auxiliary.decay_fraction));
  a.temperature = static_cast<float>(c.auxiliary.temperature);
  a.label.cost = (c.account.taker_fee_bp + c.account.half_spread_bp) * 1e-4;
  a.label.sigma = return_sd;
  a.label.temperature = c.auxiliary.label_temperature;
  a.label.risk = c.auxiliary.risk;
  return a;
}

kernels::InjectedFault injected_fault(const io::InjectConfig& c) {
  kernels::InjectedFault f;
  if (c.nan_step >= 0) f.nan_first = c.nan_step, f.nan_end = c.nan_step + c.nan_steps;
  if (c.grad_spike_step >= 0) f.spike_first = c.grad_spike_step, f.spike_end = c.grad_spike_step + c.grad_spike_steps;
  f.factor = c.grad_spike_factor;
  return f;
}

}  // namespace

StepRules make_step_rules(const io::Config& c, RandomKey key, double vmin, double vmax, double reward_scale,
                          double return_sd) {
  StepRules r;
  r.key = key;
  r.support = kernels::Support<float>::make(vmin, vmax, static_cast<int>(c.network.atoms));
  r.gather.reward = {static_cast<float>(reward_scale), static_cast<float>(c.reward.inventory_penalty)};
  r.gather.gamma = static_cast<float>(c.agent.gamma);
  r.gather.n_step = static_cast<int>(c.agent.n_step);
  r.gather.window = static_cast<std::uint32_t>(c.collect.window);
  r.gather.beta = Schedule::linear(c.replay.beta, 1.0, c.train.steps);
  r.gather.goal = kernels::make_goal_rules(c);
  r.gather.hindsight = {static_cast<float>(c.hindsight.share), static_cast<std::uint32_t>(c.hindsight.horizon), key};
  r.optimiser.rate =
      Schedule::ramp_then_linear(c.optimiser.learning_rate, c.optimiser.learning_rate * c.optimiser.final_fraction,
                                 c.optimiser.ramp_steps, c.train.steps);
  r.optimiser.beta1 = c.optimiser.beta1;
  r.optimiser.beta2 = c.optimiser.beta2;
  r.optimiser.epsilon = c.optimiser.epsilon;
  r.optimiser.weight_decay = c.optimiser.weight_decay;
  r.optimiser.clip_norm = c.optimiser.clip_norm;
  r.optimiser.tau = c.optimiser.tau;
  r.optimiser.guard = guard_rules(c);
  r.priority = {c.replay.alpha, c.replay.epsilon, c.hindsight.update_priorities};
  r.blend = Schedule::linear(0.0, 1.0, c.agent.blend_steps, c.agent.warmup_steps);
  r.double_dqn = c.agent.double_dqn;
  r.per_branch = c.agent.target == "per_branch";
  r.cql = static_cast<float>(c.cql.weight);
  r.auxiliary = auxiliary_loss(c, return_sd);
  r.diversity = static_cast<float>(c.diversity.weight);
  r.survival = Schedule::constant(c.network.survival);
  if (c.agent.scale_trunk_gradient) r.trunk_gradient_scale = 1.0f / kernels::heads;
  r.fault = injected_fault(c.inject);
  r.pruning = {c.pruning.sparsity, share_of_steps(c, c.pruning.begin_fraction),
               share_of_steps(c, c.pruning.end_fraction)};
  r.prune_every = c.pruning.sparsity > 0 ? c.pruning.every : 0;
  r.causal_every = c.causal.every;
  return r;
}

Periodic StepRules::periodic(std::int64_t step) const {
  Periodic p;
  // The last pruning is the first one at or after the schedule's end, where the sparsity is whole.
  p.prune = prune_every > 0 && step >= pruning.begin && step < pruning.end + prune_every &&
            (step - pruning.begin) % prune_every == 0;
  p.causal = causal_every > 0 && step % causal_every == 0;
  return p;
}

namespace {

/// The parts of a step as functions; what they share of the context has short names.
template <class Space>
struct Step {
  const StepContext<Space>& c;
  const StepRules& rules = c.rules;
  const Learner<Space>& learner = c.learner;
  const StepBuffers<Space>& b = c.buffers;
  const float* online = learner.buffers.parameters.data();
  const float* target = learner.buffers.target.data();
  kernels::StepState* state = learner.state.data();
  const std::uint64_t* iteration = &state->now.iteration;

  kernels::StochasticDepth depth() const {
    kernels::StochasticDepth d{rules.key, iteration, rules.survival, 0};
    if (rules.survival.value[0] < 1.0) d.rows = b.batch;  // s alone
    return d;
  }
  kernels::ForwardPass<Space, float> online_pass() const { return {online, b.online, b.batch, 2, depth()}; }
  kernels::ForwardPass<Space, float> target_pass() const { return {target, b.target_next, b.batch, 1, {}}; }

  void sample(const Space& space) const {
    const InPart part("sample");
    kernels::draw(space, c.replay.ring, rules.key, iteration, b.draws);
    kernels::gather(space, c.replay.ring, c.table, rules.gather, iteration, b.draws, b.transitions());
  }

  void spectral(const Space& space) const {
    const InPart part("spectral");
    kernels::spectral_norm(space, learner.spectral, learner.buffers.parameters, learner.state);
  }

  void forward_ddqn(const Space& space) const {
    const InPart part("forward_ddqn");
    if constexpr (!is_host_space<Space>) kernels::forward<Space, float>(space, learner.network, {target_pass()});
  }

  /// s and s' in the same products. Threads of a host run all passes in one launch, each thread its own rows.
  void forward_online(const Space& space) const {
    const InPart part("forward");
    if constexpr (is_host_space<Space>) {
      kernels::forward<Space, float>(space, learner.network, {online_pass(), target_pass()});
    } else {
      kernels::forward<Space, float>(space, learner.network, {online_pass()});
    }
  }

  void losses(const Space& space) const {
    const InPart part("loss");
    kernels::LossArguments<float> loss;
    loss.shape = learner.network.shape;
    loss.support = rules.support;
    loss.rows = b.batch;
    const auto online_logits = kernels::columns(b.online.logits),
               target_logits = kernels::columns(b.target_next.logits);
    loss.logits = online_logits;
    loss.next_target = target_logits;
    loss.next_select = target_logits;
    if (rules.double_dqn) loss.next_select = {online_logits.data + b.batch, online_logits.stride};
    loss.bias = learner.output_bias(learner.buffers.parameters);
    loss.target_bias = learner.output_bias(learner.buffers.target);
    loss.select_bias = rules.double_dqn ? loss.bias : loss.target_bias;
    loss.actions = kernels::columns(b.actions);
    loss.rewards = b.rewards.data();
    loss.discounts = b.discounts.data();
    loss.weights = b.weights.data();
    loss.iteration = iteration;
    loss.blend = rules.blend;
    loss.per_branch = rules.per_branch;
    loss.cql = rules.cql;
    loss.auxiliary = rules.auxiliary;
    loss.auxiliary.multiplier = &state->now.auxiliary_multiplier;
    loss.next_returns = b.next_returns.data();
    loss.exposures = b.exposures.data();
    loss.fault = rules.fault;
    loss.diversity = rules.diversity > 0;
    kernels::loss(space, loss, b.loss);
    if (rules.diversity > 0) {
      kernels::diversity<Space, float>(space, learner.network.shape, rules.diversity, b.online, b.loss, b.backward);
    }
  }

  void backward(const Space& space) const {
    const InPart part("backward");
    kernels::BackwardOptions<float> options;
    options.depth = depth();
    options.trunk_scale = rules.trunk_gradient_scale;
    options.hidden_gradient_added = rules.diversity > 0;
    const Block<float> gradient = kernels::block_of(b.loss.logit_gradient).columns_from(0, b.batch);
    kernels::backward<Space, float>(space, learner.network, online, b.online, gradient, b.backward,
                                    learner.buffers.gradient.data(), options);
  }

  void aux(const Space& space, Periodic periodic) const {
    if (!periodic.causal) return;
    const InPart part("causal");
    kernels::causal_delta<Space>(space, learner.network, online, learner.output_bias(learner.buffers.parameters),
                                 rules.support, rules.key, iteration, rules.causal_every, b.states(), b.causal);
  }

  void adam(const Space& space, Periodic periodic) const {
    const InPart part("optimise");
    kernels::gradient_squares(space, learner.work, learner.buffers);
    kernels::optimise(space, learner.work, rules.optimiser, learner.buffers, learner.state);
    if (periodic.prune) kernels::prune(space, learner.pruning, rules.pruning, learner.buffers, learner.state);
  }

  void priorities(const Space& space) const {
    {
      const InPart part("priorities");
      kernels::update_priorities(space, c.replay.ring, rules.priority,
                                 kernels::columns(b.loss.rows_out).at(kernels::delta_out, 0), &state->next.skip,
                                 b.draws, c.replay.counts, b.relabelled.data());
    }
    const InPart part("metrics");
    kernels::finish_step(space, b.loss, learner.work, learner.state, b.records);
  }
};

}  // namespace

template <class Space>
void run_phase(const Space& space, Phase phase, const StepContext<Space>& context, Periodic periodic) {
  const Step<Space> step{context};
  switch (phase) {
    case Phase::sample:
      return step.sample(space);
    case Phase::spectral:
      return step.spectral(space);
    case Phase::forward_ddqn:
      return step.forward_ddqn(space);
    case Phase::forward:
      return step.forward_online(space), step.losses(space), step.backward(space);
    case Phase::aux:
      return step.aux(space, periodic);
    case Phase::adam:
      return step.adam(space, periodic);
    case Phase::priorities:
      return step.priorities(space);
  }
}

template <class Space>
void learn(const Lanes<Space>& lanes, const StepContext<Space>& context, Periodic periodic) {
  const Step<Space> step{context};
  lanes.fork();
  step.forward_ddqn(lanes.side);
  step.spectral(lanes.main);
  step.forward_online(lanes.main);
  lanes.join();
  step.losses(lanes.main);
  step.backward(lanes.main);
  step.aux(lanes.main, periodic);
  step.adam(lanes.main, periodic);
}

template <class Space>
void training_step(const Lanes<Space>& lanes, const StepContext<Space>& context, Periodic periodic) {
  const Step<Space> step{context};
  step.sample(lanes.main);
  learn(lanes, context, periodic);
  step.priorities(lanes.main);
}

#define INSTANTIATE(S)                                                          \
  template void run_phase<S>(const S&, Phase, const StepContext<S>&, Periodic); \
  template void learn<S>(const Lanes<S>&, const StepContext<S>&, Periodic);     \
  template void training_step<S>(const Lanes<S>&, const StepContext<S>&, Periodic);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
