// A small training with every part of learning on, large enough for an audit of two folds.
#pragma once

#include "trainer/training_parts.hpp"

namespace vulpes::audit::test {

inline io::Config everything() {
  io::Config c = trainer::test::everything();
  c.train.batch = 64;
  c.agent.scale_trunk_gradient = true;
  c.replay.learning_starts = 64;
  c.guard.spike_factor = 100;
  c.synthetic.train_bars = 2000;
  return c;
}

}  // namespace vulpes::audit::test
