// The losses besides the temporal-difference one, each against its formula, its gradient against central differences;
// injected faults; what being off means.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/network_fixture.hpp"
#include "vulpes/kernels/diversity.hpp"
#include "vulpes/kernels/formulas/cql.hpp"
#include "vulpes/kernels/formulas/diversity.hpp"
#include "vulpes/kernels/formulas/exposure_label.hpp"

namespace vulpes::kernels {
namespace {

constexpr int levels = market::exposure_levels;

template <class Real>
struct Conservative {
  Real loss;
  std::array<Real, 3> slope;
};
template <class Real>
Conservative<Real> conservative(std::array<Real, 3> q, Real taken) {
  Conservative<Real> c;
  c.loss = conservative_loss<Real>(
      3, [&](int a) { return q[a]; }, taken, [&](int a) { return c.slope[a]; }, [&](int a, Real v) { c.slope[a] = v; });
  return c;
}

TEST(Cql, LargeValuesKeepTheirDifference) {
  EXPECT_NEAR(conservative<double>({1000, 999, 998}, 2).loss, 2.4076059644443806, 1e-12);
  EXPECT_NEAR(conservative<float>({1000, 999, 998}, 2).loss, 2.407606f, 1e-6f);
  EXPECT_NEAR(conservative<float>({1000, 999, 998}, 0).loss, 0.407606f, 1e-6f);
}

TEST(Cql, SlopeIsSoftmaxLessTheActionTaken) {
  const double sum = std::exp(0.5) + std::exp(-1.0) + std::exp(2.0);
  const auto c = conservative<double>({0.5, -1, 2}, 1);
  EXPECT_NEAR(c.slope[0], std::exp(0.5) / sum, 1e-15);
  EXPECT_NEAR(c.slope[1], std::exp(-1.0) / sum - 1, 1e-15);
  EXPECT_NEAR(c.slope[2], std::exp(2.0) / sum, 1e-15);
}

using Label = std::array<double, levels>;
Label label_of(const ExposureLabelRules& rules, double r, double e0) {
  Label label;
  exposure_label<double>(
      rules, r, e0, [&](int a) { return label[a]; }, [&](int a, double v) { label[a] = v; });
  return label;
}
int largest(const Label& label) {
  return static_cast<int>(std::max_element(label.begin(), label.end()) - label.begin());
}

TEST(ExposureLabel, IsTheSoftmaxOfTheUtilities) {
  const ExposureLabelRules rules{0.0012, 0.008, 0.5, 3};
  const double r = 0.004, e0 = 0.3;
  const Label label = label_of(rules, r, e0);
  double sum = 0;
  std::array<double, levels> weight;
  for (int a = 0; a < levels; ++a) {
    const double e = -1 + 0.25 * a;
    const double utility = e * r - 0.0012 * std::abs(e - e0) - 3 * (e * 0.008) * (e * 0.008) / 2;
    sum += weight[a] = std::exp(utility / (0.5 * 0.008));
  }
  for (int a = 0; a < levels; ++a) EXPECT_NEAR(label[a], weight[a] / sum, 1e-14) << a;
}

TEST(ExposureLabel, FollowsALargeReturnToTheEndLevels) {
  const ExposureLabelRules rules{0.001, 0.01, 0.5, 1};
  for (const double e0 : {-1.0, 0.1, 1.0}) {
    EXPECT_GT(label_of(rules, 0.2, e0)[levels - 1], 0.99) << e0;
    EXPECT_GT(label_of(rules, -0.2, e0)[0], 0.99) << e0;
  }
}

TEST(ExposureLabel, CostKeepsThePresentExposure) {
  const ExposureLabelRules rules{0.004, 0.01, 0.1, 0};
  for (int a = 0; a < levels; ++a) {
    for (const double drift : {-0.1, 0.0, 0.1}) {
      if (std::abs(-1 + 0.25 * a + drift) > 1) continue;
      const Label label = label_of(rules, 0.0005, -1 + 0.25 * a + drift);
      EXPECT_EQ(largest(label), a) << drift;
      EXPECT_LT(label[a], 0.9) << "a soft label leaves the neighbours something";
    }
  }
}

TEST(ExposureLabel, BecomesHardAsItsTemperatureFalls) {
  // Without costs the best exposure is r / (risk sigma^2) = 0.5, an inner level.
  ExposureLabelRules rules{0, 0.01, 1e-5, 80};
  const Label hard = label_of(rules, 0.004, -1);
  for (int a = 0; a < levels; ++a) EXPECT_NEAR(hard[a], a == 6 ? 1 : 0, 1e-12) << a;
  rules.risk = 0;
  EXPECT_EQ(label_of(rules, 0.004, -1)[levels - 1], 1);
  rules.cost = 0.005;  // dearer than what it earns: stay
  EXPECT_EQ(label_of(rules, 0.004, -1)[0], 1);
  rules.temperature = 1e6;
  for (const double p : label_of(rules, 0.004, -1)) EXPECT_NEAR(p, 1.0 / levels, 1e-6);
}

TEST(ExposureLabel, MirrorsWithTheMarket) {
  const ExposureLabelRules rules{0.001, 0.01, 0.5, 2};
  const Label up = label_of(rules, 0.006, 0.2), down = label_of(rules, -0.006, -0.2);
  for (int a = 0; a < levels; ++a) EXPECT_NEAR(up[a], down[levels - 1 - a], 1e-15);
}

template <class Space, class Real>
struct Parts : test::LossProblem<Space, Real> {
  using Base = test::LossProblem<Space, Real>;
  LossArguments<Real> in;
  Vector<Real, Space> next_returns, exposures;
  Kokkos::View<double, Kokkos::HostSpace> multiplier{"multiplier"};

  explicit Parts(double c51_share = 0.3, bool own_targets = false, int batch = 16)
      : Base({8, 16, 8, 1, 8, 11}, batch, 7), next_returns("next_returns", batch), exposures("exposures", batch) {
    this->blend = c51_share;
    this->per_branch = own_targets;
    test::Draws draw(11);
    for (int r = 0; r < batch; ++r) {
      next_returns(r) = static_cast<Real>(0.01 * draw.normal());
      exposures(r) = static_cast<Real>(2 * draw.uniform() - 1);
    }
    multiplier() = 1;
    Base::run();
    in = this->arguments();
    in.next_returns = next_returns.data();
    in.exposures = exposures.data();
  }
  void with_auxiliary(double weight) {
    in.auxiliary = {true, Schedule::constant(weight), multiplier.data(), Real(0.7), {0.001, 0.01, 0.5, 2}};
  }
  double loss_of_batch() {
    loss(this->space, in, this->buffers);
    double sum = 0;
    for (int r = 0; r < this->rows; ++r) sum += this->buffers.rows_out(loss_out, r);
    return sum / this->rows;
  }
  Real figure(RowOutput output, int row) const { return this->buffers.rows_out(output, row); }
  /// The gradient on the logits, [logits, B].
  std::vector<Real> gradient_on_logits() const {
    std::vector<Real> g;
    for (int i = 0; i < this->network.shape.logits(); ++i) {
      for (int r = 0; r < this->rows; ++r) g.push_back(this->buffers.logit_gradient(i, r));
    }
    return g;
  }
};

struct Case {
  const char* name;
  double cql, auxiliary, blend;
  bool per_branch;
};
class LossParts : public testing::TestWithParam<Case> {};

TEST_P(LossParts, GradientAgreesWithCentralDifferencesForEveryLogit) {
  const Case c = GetParam();
  Parts<Kokkos::Serial, double> p(c.blend, c.per_branch);
  p.in.cql = c.cql;
  if (c.auxiliary > 0) p.with_auxiliary(c.auxiliary);
  p.loss_of_batch();
  const auto gradient = p.gradient_on_logits();
  // No row's loss depends on another row's logits, so that one atom of all rows moves at a time.
  const auto losses_with = [&](int logit, double shift) {
    std::vector<double> losses;
    for (int r = 0; r < p.rows; ++r) p.both.logits(logit, r) += shift;
    p.loss_of_batch();
    for (int r = 0; r < p.rows; ++r) {
      losses.push_back(p.figure(loss_out, r) / p.rows);
      p.both.logits(logit, r) -= shift;
    }
    return losses;
  };
  double greatest = 0, error = 0;
  std::size_t k = 0;
  for (int i = 0; i < p.network.shape.logits(); ++i) {
    const double h = 1e-4;
    const auto up = losses_with(i, h), down = losses_with(i, -h);
    for (int r = 0; r < p.rows; ++r, ++k) {
      const double numeric = (up[r] - down[r]) / (2 * h);
      greatest = std::max(greatest, std::abs(numeric));
      error = std::max(error, std::abs(numeric - gradient[k]));
    }
  }
  EXPECT_GT(greatest, 0);
  EXPECT_LT(error, 1e-6 * greatest);
}

INSTANTIATE_TEST_SUITE_P(Gradients, LossParts,
                         testing::Values(Case{"cql", 0.7, 0, 1, false}, Case{"cql_in_warm_up", 3, 0, 0, true},
                                         Case{"auxiliary", 0, 0.5, 1, false},
                                         Case{"auxiliary_in_warm_up", 0, 4, 0, true},
                                         Case{"all", 0.4, 0.6, 0.3, false}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(LossPartsRows, AreTheFormulas) {
  Parts<Kokkos::Serial, double> p(0.3);
  p.loss_of_batch();
  std::vector<double> td(p.rows);
  for (int r = 0; r < p.rows; ++r) td[r] = p.figure(loss_out, r);
  p.in.cql = 0.25;
  p.with_auxiliary(0.5);
  p.multiplier() = 3;
  p.loss_of_batch();
  const int atoms = p.network.shape.atoms;
  for (int r = 0; r < p.rows; ++r) {
    double cql = 0, auxiliary = 0;
    for (int d = 0; d < branches; ++d) {
      double sum = 0, own = 0, colder = 0;
      std::vector<double> q(actions_of(d));
      for (int a = 0; a < actions_of(d); ++a) {
        double mass = 0;
        for (int z = 0; z < atoms; ++z) {
          const auto biased = [&](int i) { return p.both.logits(i, r) + p.in.bias[i]; };
          double mean = 0;
          for (int b = 0; b < actions_of(d); ++b) mean += biased(p.network.shape.first_logit(d, b) + z) / actions_of(d);
          const double e = std::exp(biased(z) + biased(p.network.shape.first_logit(d, a) + z) - mean);
          mass += e;
          q[a] += e * p.support.atom(z);
        }
        q[a] /= mass;
        EXPECT_NEAR(p.buffers.q(first_action(d) + a, r), q[a], 1e-12);
        sum += std::exp(q[a]);
        colder += std::exp(q[a] / 0.7);
        if (a == p.actions(d, r)) own = q[a];
      }
      cql += (std::log(sum) - own) / branches;
      if (d > 0) continue;
      const Label label = label_of(p.in.auxiliary.label, p.next_returns(r), p.exposures(r));
      for (int a = 0; a < levels; ++a) auxiliary -= label[a] * (q[a] / 0.7 - std::log(colder));
    }
    EXPECT_NEAR(p.figure(cql_out, r), cql, 1e-12);
    EXPECT_NEAR(p.figure(auxiliary_out, r), auxiliary, 1e-12);
    EXPECT_NEAR(p.figure(loss_out, r), td[r] + 0.25 * cql + 1.5 * auxiliary, 1e-12);
  }
}

/// Also the sign of zero counts.
template <class Real>
void expect_same_bits(const std::vector<Real>& a, const std::vector<Real>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)), 0);
}

TEST(LossPartsOff, WeightsOfZeroChangeNoBit) {
  for (const bool per_branch : {false, true}) {
    Parts<Kokkos::Serial, float> p(0.3, per_branch, 48);
    p.run();  // arguments that name none of the parts
    const auto gradient = p.gradient_on_logits();
    std::vector<float> figures(p.buffers.rows_out.data(), p.buffers.rows_out.data() + p.buffers.rows_out.size());
    p.in.cql = 0;
    p.in.auxiliary.weight = Schedule::constant(5);
    p.loss_of_batch();
    expect_same_bits(gradient, p.gradient_on_logits());
    expect_same_bits(
        figures, std::vector<float>(p.buffers.rows_out.data(), p.buffers.rows_out.data() + p.buffers.rows_out.size()));
    for (int r = 0; r < p.rows; ++r) {
      EXPECT_EQ(p.figure(cql_out, r), 0);
      EXPECT_EQ(p.figure(auxiliary_out, r), 0);
      EXPECT_EQ(p.figure(diversity_out, r), 0);
    }
  }
}

TEST(LossPartsOff, MultiplierOfZeroGivesTheGradientOfOff) {
  Parts<Kokkos::Serial, float> p;
  p.loss_of_batch();
  const auto off = p.gradient_on_logits();
  p.with_auxiliary(2);
  p.loss_of_batch();
  EXPECT_NE(p.gradient_on_logits(), off);
  p.multiplier() = 0;
  const double loss = p.loss_of_batch();
  EXPECT_EQ(p.gradient_on_logits(), off);
  EXPECT_GT(p.figure(auxiliary_out, 0), 0) << "still reported";
  p.in.auxiliary.on = false;
  EXPECT_EQ(p.loss_of_batch(), loss);
}

TEST(LossPartsSpaces, AgreeBitForBit) {
#if defined(KOKKOS_ENABLE_OPENMP)
  Parts<Kokkos::Serial, float> one(0.3, true, 64);
  Parts<Kokkos::OpenMP, float> many(0.3, true, 64);
  Kokkos::deep_copy(many.online, one.online);  // in place: the arguments point into it
  const auto run = [](auto& p) {
    p.in.cql = 0.3f;
    p.with_auxiliary(0.2);
    p.loss_of_batch();
    return p.gradient_on_logits();
  };
  for (int i = 0; i < one.network.shape.logits(); ++i) {
    for (int r = 0; r < 2 * one.rows; ++r) many.both.logits(i, r) = one.both.logits(i, r);
    for (int r = 0; r < one.rows; ++r) many.target_next.logits(i, r) = one.target_next.logits(i, r);
  }
  expect_same_bits(run(one), run(many));
#else
  GTEST_SKIP() << "one host space";
#endif
}

TEST(InjectedFault, HitsItsStepsAlone) {
  Parts<Kokkos::Serial, float> p;
  p.loss_of_batch();
  const auto clean = p.gradient_on_logits();
  p.in.fault = {3, 5, 7, 8, 1000};
  for (std::uint64_t step = 0; step < 10; ++step) {
    p.iteration() = step;
    const double loss = p.loss_of_batch();
    const auto g = p.gradient_on_logits();
    EXPECT_EQ(std::isnan(loss), step == 3 || step == 4) << step;
    for (std::size_t k = 0; k < g.size(); ++k) {
      if (step == 3 || step == 4)
        ASSERT_TRUE(std::isnan(g[k])) << step;
      else if (step == 7)
        ASSERT_NEAR(g[k], 1000 * clean[k], 1e-5f * std::abs(1000 * clean[k]));
      else
        ASSERT_EQ(g[k], clean[k]) << step;
    }
  }
}

/// Rows with a fault have a gradient of NaN in every logit, the others the one of `clean`.
template <class Problem, class Real>
void expect_nan_rows(const Problem& p, const std::vector<Real>& clean, int row) {
  const auto g = p.gradient_on_logits();
  for (std::size_t k = 0; k < g.size(); ++k) {
    if (static_cast<int>(k % p.rows) == row)
      ASSERT_TRUE(std::isnan(g[k])) << "logit " << k / p.rows;
    else
      ASSERT_EQ(g[k], clean[k]);
  }
}

TEST(NaN, InOneLossIsInItsRowsWholeGradient) {
  Parts<Kokkos::Serial, float> p;
  p.with_auxiliary(0.5);
  p.in.cql = 0.1f;
  p.loss_of_batch();
  const auto clean = p.gradient_on_logits();

  // The label teaches the exposure branch alone: the order's and urgency's logits get it by the rule.
  const float next_return = p.next_returns(5);
  p.next_returns(5) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(p.loss_of_batch()));
  expect_nan_rows(p, clean, 5);
  p.next_returns(5) = next_return;

  const float reward = p.rewards(9);
  p.rewards(9) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(p.loss_of_batch()));
  expect_nan_rows(p, clean, 9);
  p.rewards(9) = reward;

  p.weights(2) = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(p.loss_of_batch()));
  expect_nan_rows(p, clean, 2);
}

TEST(NaN, FromALossThatOverflowsThoughItsGradientDoesNot) {
  Parts<Kokkos::Serial, float> p(0);
  p.in.cql = 1e-3f;
  p.loss_of_batch();
  const auto clean = p.gradient_on_logits();
  p.in.auxiliary.on = false;
  p.weights(4) = 3e38f;  // times a squared error above 1 the loss is infinite
  const float gradient_scale = 1.0f / 48;
  ASSERT_GT(p.figure(mse_out, 4) * 3e38, 4e38) << "choose another row";
  ASSERT_LT(std::abs(clean[4]) / gradient_scale, 1e3f);
  EXPECT_TRUE(std::isinf(p.loss_of_batch()));
  const auto g = p.gradient_on_logits();
  for (std::size_t k = 4; k < g.size(); k += p.rows) ASSERT_TRUE(std::isnan(g[k]));
}

struct Diverse {
  using Space = Kokkos::Serial;
  static constexpr int rows = 16, width = 24;
  NetworkShape shape{8, 16, 8, 1, width, 11};
  Activations<Space, double> a{Space(), shape, rows, "online"};
  LossBuffers<Space, double> loss{Space(), shape, rows, "loss"};
  BackwardBuffers<Space, double> backward{Space(), shape, rows, "backward"};

  Diverse() {
    test::Draws draw(3);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < heads * width; ++j) a.hidden(i, j) = std::max(0.0, draw.normal());
    }
  }
  double run(double weight) {
    diversity(Space(), shape, weight, a, loss, backward);
    double sum = 0;
    for (int i = 0; i < rows; ++i) sum += out(i);
    return weight * sum / rows;
  }
  double out(int row) const { return loss.rows_out(diversity_out, row); }
  std::vector<double> gradient() const {
    return {backward.hidden.data(), backward.hidden.data() + backward.hidden.size()};
  }
  void set(int row, int branch, int j, double v) { a.hidden(row, (1 + branch) * width + j) = v; }
};

TEST(Diversity, IsTheMeanSquaredCosineOfPairs) {
  Diverse p;
  for (int d = 0; d < branches; ++d) {
    for (int j = 0; j < p.width; ++j) {
      p.set(0, d, j, j % 3 == d);                    // orthogonal
      p.set(1, d, j, (1 + j) * std::pow(10, d));     // parallel
      p.set(2, d, j, j == 0 || (j == 1 && d == 2));  // two equal, the third at 45 degrees
      p.set(3, d, j, 0);                             // dead
    }
  }
  p.run(1);
  EXPECT_NEAR(p.out(0), 0, 1e-15);
  EXPECT_NEAR(p.out(1), 1, 1e-15);
  EXPECT_NEAR(p.out(2), (1 + 0.5 + 0.5) / 3, 1e-15);
  EXPECT_EQ(p.out(3), 0);
  for (int j = 0; j < heads * p.width; ++j) EXPECT_EQ(p.backward.hidden(3, j), 0);
}

TEST(Diversity, GradientAgreesWithCentralDifferences) {
  Diverse p;
  for (int j = 0; j < p.width; ++j) {
    p.set(2, 1, j, 1e-8 * (1 + j % 4));  // a norm under the floor
    p.set(3, 2, j, 0);                   // a dead branch
  }
  const double weight = 0.7;
  p.run(weight);
  const auto analytic = p.gradient();
  // Where a branch's norm is under the floor its loss is steep, so that errors are relative to each part's largest.
  struct Part {
    double step, greatest = 0, error = 0;
  } usual{1e-5}, floored{1e-9};
  for (int i = 0; i < p.rows; ++i) {
    for (int j = 0; j < heads * p.width; ++j) {
      Part& part = (i == 2 && j / p.width == 2) || (i == 3 && j / p.width == 3) ? floored : usual;
      double& h = p.a.hidden(i, j);
      const double saved = h;
      h = saved + part.step;
      const double up = p.run(weight);
      h = saved - part.step;
      const double down = p.run(weight);
      h = saved;
      const double numeric = (up - down) / (2 * part.step), ours = analytic[i * heads * p.width + j];
      part.greatest = std::max(part.greatest, std::abs(numeric));
      part.error = std::max(part.error, std::abs(numeric - ours));
      if (j < p.width) {
        EXPECT_EQ(ours, 0) << "the value head has no part in it";
      }
    }
  }
  for (const Part& part : {usual, floored}) {
    EXPECT_GT(part.greatest, 0);
    EXPECT_LT(part.error, 1e-6 * part.greatest);
  }
}

TEST(Diversity, FallsAlongItsGradient) {
  Diverse p;
  const double before = p.run(1);
  for (int step = 0; step < 50; ++step) {
    for (int i = 0; i < p.rows; ++i) {
      for (int j = 0; j < heads * p.width; ++j) p.a.hidden(i, j) -= 5 * p.backward.hidden(i, j);
    }
    p.run(1);
  }
  EXPECT_LT(p.run(1), 0.5 * before);
}

TEST(Diversity, NaNIsInItsRowsGradientAlone) {
  Diverse p;
  p.set(1, 0, 3, std::numeric_limits<double>::infinity());
  p.run(1);
  bool nan = false;
  for (int i = 0; i < p.rows; ++i) {
    for (int j = 0; j < heads * p.width; ++j) {
      const double g = p.backward.hidden(i, j);
      if (i == 1)
        nan = nan || std::isnan(g);
      else
        ASSERT_TRUE(std::isfinite(g));
    }
  }
  EXPECT_TRUE(nan);
}

/// Through the network: backward() adds the gradient on the activations to the one from the logits.
TEST(Diversity, ReachesTheParameters) {
  Parts<Kokkos::Serial, double> p;
  const double weight = 0.8;
  p.in.diversity = true;
  const auto whole_loss = [&] {
    forward(p.space, p.network, static_cast<const double*>(p.online.data()), p.both, 2 * p.rows);
    double sum = p.loss_of_batch();
    diversity(p.space, p.network.shape, weight, p.both, p.buffers, p.backward_buffers);
    for (int r = 0; r < p.rows; ++r) sum += weight * p.figure(diversity_out, r) / p.rows;
    return sum;
  };
  whole_loss();
  BackwardOptions<double> options;
  options.hidden_gradient_added = true;
  backward<Kokkos::Serial, double>(p.space, p.network, p.online.data(), p.both,
                                   block_of(p.buffers.logit_gradient).columns_from(0, p.rows), p.backward_buffers,
                                   p.gradient.data(), options);
  for (const TensorSlice& t : p.network.layout.tensors()) {
    double greatest = 0, error = 0;
    for (std::size_t i = t.offset; i < t.offset + t.size(); i += 3) {
      const double saved = p.online(i), h = 1e-5;
      p.online(i) = saved + h;
      const double up = whole_loss();
      p.online(i) = saved - h;
      const double down = whole_loss();
      p.online(i) = saved;
      const double numeric = (up - down) / (2 * h);
      greatest = std::max(greatest, std::abs(numeric));
      error = std::max(error, std::abs(numeric - p.gradient(i)));
    }
    EXPECT_GT(greatest, 0) << t.name;
    EXPECT_LT(error, 1e-6 * greatest) << t.name;
  }
}

TEST(Diversity, IsNotClearedByTheLoss) {
  Parts<Kokkos::Serial, float> p;
  p.buffers.rows_out(diversity_out, 3) = 0.25f;
  p.in.diversity = true;
  p.loss_of_batch();
  EXPECT_EQ(p.figure(diversity_out, 3), 0.25f);
  p.in.diversity = false;
  p.loss_of_batch();
  EXPECT_EQ(p.figure(diversity_out, 3), 0);
}

}  // namespace
}  // namespace vulpes::kernels
