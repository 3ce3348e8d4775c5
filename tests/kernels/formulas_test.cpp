// Cases of cases.md, "C51 and heads", by value.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/network_fixture.hpp"
#include "vulpes/kernels/formulas/categorical.hpp"
#include "vulpes/kernels/formulas/dueling.hpp"
#include "vulpes/kernels/formulas/losses.hpp"
#include "vulpes/kernels/formulas/projection.hpp"

namespace vulpes::kernels {
namespace {

template <class Real>
std::vector<Real> project(const Support<Real>& support, const std::vector<Real>& p, Real reward, Real discount,
                          Real* clipped = nullptr) {
  std::vector<Real> m(p.size() + 2, Real(-7));  // guards on both sides
  std::fill(m.begin() + 1, m.end() - 1, Real(0));
  Real lost = 0;
  for (int z = 0; z < support.atoms; ++z) {
    lost += project_atom(support, p[z], reward + discount * support.atom(z), m.data() + 1, 1);
  }
  EXPECT_EQ(m.front(), Real(-7)) << "wrote before the support";
  EXPECT_EQ(m.back(), Real(-7)) << "wrote past the support";
  for (int j = 0; j < support.atoms; ++j) {  // an atom a thread: the same bits
    const Real gathered = projected_mass(support, j, reward, discount, [&](int z) { return p[z]; });
    if (!std::isnan(m[j + 1])) {
      EXPECT_EQ(gathered, m[j + 1]) << "atom " << j << ", reward " << reward << ", discount " << discount;
    }
    EXPECT_EQ(std::isnan(gathered), std::isnan(m[j + 1])) << j;
  }
  if (clipped) *clipped = lost;
  return {m.begin() + 1, m.end() - 1};
}

template <class Real>
void expect_near(const std::vector<Real>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(Projection, FiveAtomCases) {
  const auto support = Support<float>::make(-1, 1, 5);
  const std::vector<float> p = {.1f, .2f, .4f, .2f, .1f};
  expect_near(project<float>(support, p, .5f, 0.f), {0, 0, 0, 1, 0}, 1e-6);
  expect_near(project<float>(support, p, 0.f, 1.f), {.1, .2, .4, .2, .1}, 1e-7);
  expect_near(project<float>(support, p, .25f, .9f), {.03, .15, .32, .32, .18}, 1e-6);
  float clipped = 0;
  expect_near(project<float>(support, p, 100.f, .9f, &clipped), {0, 0, 0, 0, 1}, 1e-6);
  EXPECT_NEAR(clipped, 1.0, 1e-6);
}

TEST(Projection, AnAtomAThreadGivesTheSameBits) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < 2000; ++i) {
    const int atoms = 2 + static_cast<int>(random() % 60);
    const double low = -10 * uniform(random);
    const auto support = Support<float>::make(low, low + 0.01 + 20 * uniform(random), atoms);
    std::vector<float> p(static_cast<std::size_t>(atoms));
    for (float& x : p) x = static_cast<float>(uniform(random));
    const float reward = static_cast<float>((uniform(random) - 0.5) * std::pow(10.0, 6 * uniform(random) - 2));
    const float discount = i % 5 == 0 ? 0.0f : static_cast<float>(i % 5 == 1 ? 1.0 : uniform(random));
    project<float>(support, p, reward, discount);
  }
  const auto support = Support<float>::make(-1, 1, 5);
  project<float>(support, {.1f, .2f, .4f, .2f, .1f}, NAN, 0.9f);
  project<float>(support, {.1f, .2f, .4f, .2f, .1f}, INFINITY, 0.9f);
  project<float>(support, {.1f, NAN, .4f, .2f, .1f}, 0.1f, 0.9f);
}

TEST(Projection, TopAtomOfFiftyOneStaysInside) {
  const auto support = Support<float>::make(-2.05, 2.05, 51);
  std::vector<float> p(51, 0.0f);
  p[50] = 1.0f;
  // The rewards put the top atom at and a few ulp beyond position 50 (50.0000038 in other orders of the operations).
  for (const float reward : {0.0f, 3e-7f, 5e-7f, 1e-6f}) {
    float clipped = 0;
    const auto m = project<float>(support, p, reward, 1.0f, &clipped);
    EXPECT_NEAR(m[50], 1.0, 1e-5) << reward;
    EXPECT_EQ(clipped, 0.0f) << "rounding is no clipping";
  }
}

TEST(Projection, KeepsMassAndMeanForRandomDistributions) {
  test::Draws draw(3);
  const auto support = Support<double>::make(-5, 5, 51);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> p(51);
    double total = 0;
    for (double& x : p) total += x = draw.uniform();
    for (double& x : p) x /= total;
    const double reward = draw.normal() * 0.1, discount = 0.5 + 0.4 * draw.uniform();
    const auto m = project<double>(support, p, reward, discount);
    double mass = 0, mean = 0, expected = 0;
    for (int z = 0; z < 51; ++z) {
      ASSERT_GE(m[z], 0.0);
      mass += m[z];
      mean += m[z] * support.atom(z);
      expected += p[z] * (reward + discount * support.atom(z));
    }
    EXPECT_NEAR(mass, 1, 1e-14);
    EXPECT_NEAR(mean, expected, 1e-12);
  }
}

// logits {1000,0,0}, target {0,1,0}: loss 1000, gradient {1,-1,0}.
TEST(CrossEntropy, LargeLogitsStayFinite) {
  const float logits[3] = {1000, 0, 0}, target[3] = {0, 1, 0}, expected[3] = {1, -1, 0};
  const auto scale = softmax<float>(
      3, [&](int z) { return logits[z]; }, [](int, float) {});
  const float log_sum = logarithm(scale.sum);
  float loss = 0;
  for (int z = 0; z < 3; ++z) {
    const float log_p = logits[z] - scale.largest - log_sum;
    loss -= target[z] * log_p;
    EXPECT_NEAR(c51_gradient(exponential(log_p), target[z]), expected[z], 1e-6);
  }
  EXPECT_NEAR(loss, 1000, 1e-3);
}

// V = 0, A = {{1,3},{10,20}} (two rows): Q = {{-1,1},{-5,5}}.
TEST(Dueling, SubtractsTheMeanOfEachRow) {
  const double advantage[2][2] = {{1, 10}, {3, 20}}, bias[2] = {0, 0};  // [action][row]
  for (int row = 0; row < 2; ++row) {
    const double base = dueling_base<double>(0.0, &advantage[0][row], 2, bias, 1, 2);
    EXPECT_DOUBLE_EQ(base + advantage[0][row], row == 0 ? -1 : -5);
    EXPECT_DOUBLE_EQ(base + advantage[1][row], row == 0 ? 1 : 5);
    EXPECT_DOUBLE_EQ(dueling_chosen<double>(0.0, &advantage[0][row], 2, bias, 1, 2, 1.0), row == 0 ? 1 : 5);
  }
}

TEST(Argmax, FirstOfATieWins) {
  const float q[4] = {1, 3, 3, 2};
  EXPECT_EQ(argmax<float>(4, [&](int a) { return q[a]; }), 1.0f);
}

/// A network whose logits are set by hand: zero weights, biases chosen.
struct HandMade {
  test::LossProblem<Kokkos::Serial, double> p{{8, 8, 8, 0, 8, 2}, 16, 5};
  HandMade() {
    Kokkos::deep_copy(p.online, 0.0);
    Kokkos::deep_copy(p.target, 0.0);
    p.support = Support<double>::make(-20, 20, 2);
    p.blend = 0;
    for (int r = 0; r < p.rows; ++r) {
      p.weights(r) = 1;
      p.rewards(r) = 0;
      p.discounts(r) = 1;
      for (int d = 0; d < branches; ++d) p.actions(d, r) = 0;
    }
  }
  /// Makes Q_d(s, a) equal to q in the network `parameters` (two atoms at -20 and 20).
  void set_q(const Vector<double, Kokkos::Serial>& parameters, int d, int a, double q) {
    const double share = (q + 20) / 40;
    const std::size_t bias = p.network.layout[p.network.output_bias].offset + p.network.shape.first_logit(d, a);
    parameters(bias) = 0;
    parameters(bias + 1) = std::log(share / (1 - share));
  }
  /// The same for all actions of a branch, so that the dueling mean does not shift them: logits of atom 0 are zero,
  /// those of atom 1 keep their differences but lose their mean, which the value head gives back.
  void set_branch(const Vector<double, Kokkos::Serial>& parameters, int d, const std::vector<double>& q) {
    for (std::size_t a = 0; a < q.size(); ++a) set_q(parameters, d, static_cast<int>(a), q[a]);
  }
  double mean_logit(const Vector<double, Kokkos::Serial>& parameters, int d) {
    double sum = 0;
    for (int a = 0; a < actions_of(d); ++a) {
      sum += parameters(p.network.layout[p.network.output_bias].offset + p.network.shape.first_logit(d, a) + 1);
    }
    return sum / actions_of(d);
  }
};

// online Q(s') = {1,3}, target Q(s') = {10,2}, r = 0, discount 1 -> 2: the online network chooses, the target one
// values.
TEST(DoubleDqn, OnlineChoosesTargetValues) {
  HandMade h;
  // Logits of atom 1 are odds of Q; a common shift per branch cancels in the dueling mean, so choose odds by
  // difference: branch values are read back from q/next and the target's mean.
  const auto bias = h.p.network.layout[h.p.network.output_bias].offset;
  const auto value_logit = bias + 1;  // value head, atom 1
  for (int d = 1; d < branches; ++d) {
    h.set_branch(h.p.online, d, std::vector<double>(actions_of(d), 0.0));
    h.set_branch(h.p.target, d, std::vector<double>(actions_of(d), 0.0));
  }
  h.set_branch(h.p.online, 0, {1, 3, -5, -5, -5, -5, -5, -5, -5});
  h.set_branch(h.p.target, 0, {10, 2, 0, 0, 0, 0, 0, 0, 0});
  h.p.online(value_logit) = h.mean_logit(h.p.online, 0);
  h.p.target(value_logit) = h.mean_logit(h.p.target, 0);
  h.p.per_branch = true;
  h.p.run();
  EXPECT_EQ(h.p.buffers.next_action(0, 3), 1.0);
  EXPECT_NEAR(h.p.buffers.next_q(0, 3), 1, 1e-12);
  EXPECT_NEAR(h.p.buffers.next_q(1, 3), 3, 1e-12);
  double y = 0;
  for (int z = 0; z < 2; ++z) y += h.p.buffers.target(z, 3) * h.p.support.atom(z);
  EXPECT_NEAR(y, 2, 1e-12);
}

// Gathered branch values {2,4,9}, r = 1, discount .9, mean -> 5.5.
TEST(Aggregation, MeanOfTheBranchesTargets) {
  HandMade h;
  const double gathered[branches] = {2, 4, 9};
  const auto value_logit = h.p.network.layout[h.p.network.output_bias].offset + 1;
  // All actions of a branch alike: A - mean A = 0, so a branch's value can only come from V, which is common. Give the
  // three branches their values through one better action each and compensate the mean through that action's advantage.
  for (int d = 0; d < branches; ++d) {
    const double share = (gathered[d] + 20) / 40, odds = std::log(share / (1 - share));
    const int n = actions_of(d);
    const auto first = h.p.network.layout[h.p.network.output_bias].offset;
    // A[0] = odds * n / (n - 1), others 0: A[0] - mean = odds.
    h.p.target(first + h.p.network.shape.first_logit(d, 0) + 1) = odds * n / (n - 1);
    h.p.online(first + h.p.network.shape.first_logit(d, 0) + 1) = 5;
  }
  h.p.target(value_logit) = 0;
  for (int r = 0; r < h.p.rows; ++r) {
    h.p.rewards(r) = 1;
    h.p.discounts(r) = 0.9;
  }
  h.p.run();
  double y = 0;
  for (int z = 0; z < 2; ++z) y += h.p.buffers.target(z, 0) * h.p.support.atom(z);
  EXPECT_NEAR(y, 5.5, 1e-12);
}

// A terminal target does not depend on p(s').
TEST(Targets, TerminalTargetIgnoresTheNextState) {
  test::LossProblem<Kokkos::Serial, float> a({8, 16, 8, 1, 8, 11}, 16, 7), b({8, 16, 8, 1, 8, 11}, 16, 7);
  for (int r = 0; r < 16; ++r) {
    a.discounts(r) = b.discounts(r) = 0;
    for (int j = 0; j < 8; ++j) {
      b.both.input(16 + r, j) = 3.0f - b.both.input(16 + r, j);
      b.target_next.input(r, j) = b.both.input(16 + r, j);
    }
  }
  a.run();
  b.run();
  for (int z = 0; z < 11; ++z) {
    for (int r = 0; r < 16; ++r) EXPECT_NEAR(a.buffers.target(z, r), b.buffers.target(z, r), 1e-6);
  }
}

// Branch errors +5 and -5 never cancel in a priority.
TEST(Priority, BranchErrorsDoNotCancel) {
  HandMade h;
  const auto first = h.p.network.layout[h.p.network.output_bias].offset;
  // Q of the taken action: +5 in branch 0, -5 in branch 1, 0 in branch 2; target 0.
  const double q[branches] = {5, -5, 0};
  for (int d = 0; d < branches; ++d) {
    const double share = (q[d] + 20) / 40, odds = std::log(share / (1 - share));
    h.p.online(first + h.p.network.shape.first_logit(d, 0) + 1) = odds * actions_of(d) / (actions_of(d) - 1);
  }
  for (int r = 0; r < h.p.rows; ++r) h.p.discounts(r) = 0;
  h.p.run();
  EXPECT_NEAR(h.p.buffers.rows_out(q_out, 0), 0, 1e-12);
  EXPECT_NEAR(h.p.buffers.rows_out(delta_out, 0), 10.0 / 3, 1e-12);
}

TEST(Loss, NaNInALogitReachesLossAndGradient) {
  test::LossProblem<Kokkos::Serial, float> p({8, 16, 8, 1, 8, 11}, 16, 7);
  p.both.input(2, 0) = std::nanf("");
  p.run();
  EXPECT_TRUE(std::isnan(p.buffers.rows_out(loss_out, 2)));
  EXPECT_FALSE(std::isnan(p.buffers.rows_out(loss_out, 3)));
  bool seen = false;
  for (int i = 0; i < p.network.shape.logits(); ++i) seen |= std::isnan(p.buffers.logit_gradient(i, 2));
  EXPECT_TRUE(seen);
}

// A NaN reward once became an atom index far outside the support.
TEST(Loss, NaNRewardReachesTheLossAndWritesNowhereElse) {
  test::LossProblem<Kokkos::Serial, float> p({8, 16, 8, 1, 8, 11}, 16, 7);
  p.rewards(2) = std::nanf("");
  p.run();
  EXPECT_TRUE(std::isnan(p.buffers.rows_out(loss_out, 2)));
  EXPECT_FALSE(std::isnan(p.buffers.rows_out(loss_out, 3)));
}

TEST(Loss, SerialAndOpenMPGiveTheSameBits) {
#if defined(KOKKOS_ENABLE_OPENMP)
  test::LossProblem<Kokkos::Serial, float> a({8, 16, 8, 1, 8, 11}, 64, 9);
  test::LossProblem<Kokkos::OpenMP, float> b({8, 16, 8, 1, 8, 11}, 64, 9);
  forward<Kokkos::Serial, float>(a.space, a.network, a.online.data(), a.both, 128);
  forward<Kokkos::Serial, float>(a.space, a.network, a.target.data(), a.target_next, 64);
  Kokkos::deep_copy(b.both.logits, a.both.logits);
  Kokkos::deep_copy(b.target_next.logits, a.target_next.logits);
  loss(a.space, a.arguments(), a.buffers);
  loss(b.space, b.arguments(), b.buffers);
  for (int i = 0; i < a.network.shape.logits(); ++i) {
    for (int r = 0; r < 64; ++r) ASSERT_EQ(a.buffers.logit_gradient(i, r), b.buffers.logit_gradient(i, r));
  }
#else
  GTEST_SKIP() << "one host space only";
#endif
}

}  // namespace
}  // namespace vulpes::kernels
