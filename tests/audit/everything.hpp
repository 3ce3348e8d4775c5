// A small training with every part of learning on.
#pragma once

#include "trainer/training_parts.hpp"

namespace vulpes::audit::test {

inline io::Config everything() {
  io::Config c = trainer::test::small_config();
  c.train.batch = 64;
  c.network.survival = 0.8;
  c.agent.scale_trunk_gradient = true;
  c.cql.weight = c.diversity.weight = c.auxiliary.weight = 0.1;
  c.hindsight.share = 0.3;
  c.reward.goal_bonus = 0.5;
  c.pruning.sparsity = 0.5;
  c.pruning.every = 3;
  c.pruning.begin_fraction = 0;
  c.causal.every = 4;
  c.causal.rows = 16;
  c.replay.learning_starts = 64;
  c.guard.spike_factor = 100;
  c.synthetic.train_bars = 2000;
  return c;
}

}  // namespace vulpes::audit::test
