#include "vulpes/trainer/step.hpp"

namespace vulpes::trainer {

StepRules make_step_rules(const io::Config& c, RandomKey key, double vmin, double vmax, double reward_scale) {
  StepRules r;
  r.key = key;
  r.support = kernels::Support<float>::make(vmin, vmax, static_cast<int>(c.network.atoms));
  r.gather.reward = {static_cast<float>(reward_scale), static_cast<float>(c.reward.inventory_penalty)};
  r.gather.gamma = static_cast<float>(c.agent.gamma);
  r.gather.n_step = static_cast<int>(c.agent.n_step);
  r.gather.window = static_cast<std::uint32_t>(c.collect.window);
  r.gather.beta = Schedule::linear(c.replay.beta, 1.0, c.train.steps);
  r.optimiser.rate =
      Schedule::ramp_then_linear(c.optimiser.learning_rate, c.optimiser.learning_rate * c.optimiser.final_fraction,
                                 c.optimiser.ramp_steps, c.train.steps);
  r.optimiser.beta1 = c.optimiser.beta1;
  r.optimiser.beta2 = c.optimiser.beta2;
  r.optimiser.epsilon = c.optimiser.epsilon;
  r.optimiser.weight_decay = c.optimiser.weight_decay;
  r.optimiser.clip_norm = c.optimiser.clip_norm;
  r.optimiser.tau = c.optimiser.tau;
  r.priority = {c.replay.alpha, c.replay.epsilon};
  r.blend = Schedule::linear(0.0, 1.0, c.agent.blend_steps, c.agent.warmup_steps);
  r.double_dqn = c.agent.double_dqn;
  r.per_branch = c.agent.target == "per_branch";
  return r;
}

template <class Space>
void learn(const Space& space, const StepRules& rules, const Learner<Space>& learner, const StepBuffers<Space>& b) {
  const kernels::Network& network = learner.network;
  const float *online = learner.buffers.parameters.data(), *target = learner.buffers.target.data();

  kernels::spectral_norm(space, learner.spectral, learner.buffers.parameters);

  kernels::forward(space, network, online, b.online, 2 * b.batch);   // s and s'
  kernels::forward(space, network, target, b.target_next, b.batch);  // s'

  kernels::LossArguments<float> loss;
  loss.shape = network.shape;
  loss.support = rules.support;
  loss.rows = b.batch;
  const auto online_logits = kernels::columns(b.online.logits), target_logits = kernels::columns(b.target_next.logits);
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
  loss.iteration = &learner.state.data()->iteration;
  loss.blend = rules.blend;
  loss.per_branch = rules.per_branch;
  kernels::loss(space, loss, b.loss);

  const Block<float> gradient = kernels::block_of(b.loss.logit_gradient).columns_from(0, b.batch);
  kernels::backward<Space, float>(space, network, online, b.online, gradient, b.backward,
                                  learner.buffers.gradient.data());

  kernels::gradient_squares(space, learner.work, learner.buffers);
  kernels::optimise(space, learner.work, rules.optimiser, learner.buffers, learner.state);
}

template <class Space>
void training_step(const Space& space, const StepRules& rules, const Learner<Space>& learner,
                   const StepBuffers<Space>& b, const Replay<Space>& replay, const kernels::MarketTable<Space>& table) {
  kernels::StepState* state = learner.state.data();
  kernels::draw(space, replay.ring, rules.key, &state->iteration, b.draws);
  kernels::gather(space, replay.ring, table, rules.gather, &state->iteration, b.draws, b.transitions());
  learn(space, rules, learner, b);
  kernels::update_priorities(space, replay.ring, rules.priority,
                             kernels::columns(b.loss.rows_out).at(kernels::delta_out, 0), &state->skip, b.draws,
                             replay.counts);
  kernels::finish_step(space, b.loss, learner.state, b.records);
}

#define INSTANTIATE(S)                                                                                 \
  template void learn<S>(const S&, const StepRules&, const Learner<S>&, const StepBuffers<S>&);        \
  template void training_step<S>(const S&, const StepRules&, const Learner<S>&, const StepBuffers<S>&, \
                                 const Replay<S>&, const kernels::MarketTable<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
