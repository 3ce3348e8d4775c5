// A small random learning problem: networks, batch and buffers, and the launches that give its loss and gradient.
#pragma once

#include <cmath>
#include <vector>

#include "vulpes/core/random.hpp"
#include "vulpes/kernels/loss.hpp"
#include "vulpes/kernels/network.hpp"

namespace vulpes::kernels::test {

/// Reproducible standard normal and uniform numbers.
class Draws {
 public:
  explicit Draws(std::uint32_t seed) : key_{seed, 0} {}
  double normal() { return normal_pair(random_words(key_, Purpose::test, 0, index_++)).first; }
  double uniform() {
    const auto w = random_words(key_, Purpose::test, 1, index_++);
    return uniform_double(w[0], w[1]);
  }
  int below(int n) { return static_cast<int>(uniform() * n); }

 private:
  RandomKey key_;
  std::uint32_t index_ = 0;
};

/// All Views are in host memory.
template <class Space, class Real>
struct LossProblem {
  Space space;
  Network network;
  int rows;
  Support<Real> support;
  double blend = 1;
  bool per_branch = false;
  BackwardOptions<Real> options;  ///< its stochastic depth is the forward pass' too
  Vector<Real, Space> online, target, gradient;
  Activations<Space, Real> both, target_next;  ///< online at [s; s'], target at s'
  LossBuffers<Space, Real> buffers;
  BackwardBuffers<Space, Real> backward_buffers;
  Kokkos::View<std::uint8_t**, Kokkos::LayoutRight, Kokkos::HostSpace> actions;
  Vector<Real, Space> rewards, discounts, weights;
  Kokkos::View<std::uint64_t, Kokkos::HostSpace> iteration{"iteration"};

  LossProblem(const NetworkShape& shape, int batch, std::uint32_t seed)
      : network(shape),
        rows(batch),
        support(Support<Real>::make(-3, 4, shape.atoms)),
        online("online", network.layout.size()),
        target("target", network.layout.size()),
        gradient("gradient", network.layout.size()),
        both(space, shape, 2 * batch, "both"),
        target_next(space, shape, batch, "target_next"),
        buffers(space, shape, batch, "loss"),
        backward_buffers(space, shape, batch, "backward"),
        actions("actions", branches, batch),
        rewards("rewards", batch),
        discounts("discounts", batch),
        weights("weights", batch) {
    Draws draw(seed);
    for (const TensorSlice& t : network.layout.tensors()) {
      const double scale = t.is_weight ? 1.5 / std::sqrt(static_cast<double>(t.columns)) : 0.3;
      for (std::size_t i = 0; i < t.size(); ++i) {
        online(t.offset + i) = static_cast<Real>(scale * draw.normal());
        target(t.offset + i) = static_cast<Real>(scale * draw.normal());
      }
    }
    for (int r = 0; r < 2 * batch; ++r) {
      for (int j = 0; j < shape.state; ++j) both.input(r, j) = static_cast<Real>(draw.normal());
    }
    for (int r = 0; r < batch; ++r) {
      for (int j = 0; j < shape.state; ++j) target_next.input(r, j) = both.input(batch + r, j);
      for (int d = 0; d < branches; ++d) actions(d, r) = static_cast<std::uint8_t>(draw.below(branch_actions[d]));
      rewards(r) = static_cast<Real>(draw.normal());
      discounts(r) = r % 5 == 0 ? Real(0) : Real(0.9);
      weights(r) = static_cast<Real>(0.2 + draw.uniform());
    }
  }

  LossArguments<Real> arguments() const {
    LossArguments<Real> a;
    a.shape = network.shape;
    a.support = support;
    a.rows = rows;
    const std::int64_t stride = both.logits.extent(1);
    a.logits = {both.logits.data(), stride};
    a.next_select = {both.logits.data() + rows, stride};
    a.next_target = {target_next.logits.data(), static_cast<std::int64_t>(target_next.logits.extent(1))};
    a.bias = a.select_bias = online.data() + network.layout[network.output_bias].offset;
    a.target_bias = target.data() + network.layout[network.output_bias].offset;
    a.actions = {actions.data(), static_cast<std::int64_t>(actions.extent(1))};
    a.rewards = rewards.data();
    a.discounts = discounts.data();
    a.weights = weights.data();
    a.iteration = iteration.data();
    a.blend = Schedule::constant(blend);
    a.per_branch = per_branch;
    return a;
  }

  /// The loss.
  double run() {
    forward<Space, Real>(space, network,
                         {{online.data(), both, rows, 2, options.depth}, {target.data(), target_next, rows, 1, {}}});
    loss(space, arguments(), buffers);
    double sum = 0;
    for (int r = 0; r < rows; ++r) sum += buffers.rows_out(loss_out, r);
    return sum / rows;
  }
  void run_backward() {
    backward(space, network, static_cast<const Real*>(online.data()), both,
             Block<const Real>{buffers.logit_gradient.data(), network.shape.logits(), rows,
                               static_cast<int>(buffers.logit_gradient.extent(1))},
             backward_buffers, gradient.data(), options);
  }
};

}  // namespace vulpes::kernels::test
