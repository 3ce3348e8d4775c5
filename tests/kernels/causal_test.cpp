#include "vulpes/kernels/causal.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/network_fixture.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/core/transfer.hpp"
#include "vulpes/kernels/formulas/causal_delta.hpp"
#include "vulpes/market/synthetic.hpp"

namespace vulpes::kernels {
namespace {

using test::Draws;

FeatureGroups three_groups(int width) {
  FeatureGroups g;
  g.names = {"first", "second", "account"};
  for (int j = 0; j < width; ++j) g.of.push_back(j < 3 ? 0 : j < 4 ? 1 : 2);
  return g;
}

constexpr RandomKey key{5, 2};

/// A random network, the states of a batch and the measurement of it on `rows` rows.
template <class Space>
struct Measurement {
  Space space;
  Network network{NetworkShape{8, 16, 16, 1, 8, 11}};
  Support<float> support = Support<float>::make(-3, 4, 11);
  FeatureGroups groups = three_groups(8);
  Vector<float, Space> parameters{"parameters", network.layout.size()};
  Matrix<float, Space> states;
  Kokkos::View<std::uint64_t, MemoryOf<Space>> iteration{"iteration"};
  CausalBuffers<Space> buffers;

  Measurement(int batch, int rows, int records = 4)
      : states("states", batch, 8), buffers(space, network.shape, groups, rows, records) {
    Draws draw(3);
    for (const TensorSlice& t : network.layout.tensors()) {
      const double scale = t.is_weight ? 1.5 / std::sqrt(static_cast<double>(t.columns)) : 0.3;
      for (std::size_t i = 0; i < t.size(); ++i) parameters(t.offset + i) = static_cast<float>(scale * draw.normal());
    }
    for (int r = 0; r < batch; ++r) {
      for (int j = 0; j < 8; ++j) states(r, j) = static_cast<float>(draw.normal());
    }
  }
  Block<float> weight(int tensor) { return network.matrix(parameters.data(), tensor); }

  /// Deltas of one measurement at step `step`.
  std::vector<double> run(std::uint64_t step = 0, std::int64_t every = 1) {
    iteration() = step;
    causal_delta<Space>(space, network, parameters.data(),
                        parameters.data() + network.layout[network.output_bias].offset, support, key, iteration.data(),
                        every, states, buffers);
    space.fence("vulpes::test::causal");
    const double* record =
        buffers.records.data() + (static_cast<std::int64_t>(step) / every % buffers.records.extent(0)) * buffers.groups;
    return {record, record + buffers.groups};
  }
};

/// All Q of one state, layer by layer in double.
std::vector<double> plain_q(const Network& n, const float* parameters, const Support<float>& support,
                            std::vector<double> x) {
  const NetworkShape& s = n.shape;
  const auto layer = [&](const std::vector<double>& in, int weight, int bias, int first, int count, bool relu) {
    const TensorSlice& w = n.layout[weight];
    std::vector<double> out(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      double sum = parameters[n.layout[bias].offset + first + i];
      for (int j = 0; j < w.columns; ++j)
        sum += parameters[w.offset + static_cast<std::size_t>(i) * w.columns + j] * in[j];
      out[i] = relu ? std::max(sum, 0.0) : sum;
    }
    return out;
  };
  x = layer(x, n.trunk_weight[0], n.trunk_bias[0], 0, s.hidden1, true);
  x = layer(x, n.trunk_weight[1], n.trunk_bias[1], 0, s.hidden2, true);
  for (int l = 0; l < s.blocks; ++l) {
    const auto add = layer(x, n.block_weight[l], n.block_bias[l], 0, s.hidden2, true);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += add[i];
  }
  std::vector<double> logits[heads];
  for (int h = 0; h < heads; ++h) {
    const auto hidden = layer(x, n.hidden_weight[h], n.hidden_bias, h * s.head_hidden, s.head_hidden, true);
    logits[h] = layer(hidden, n.output_weight[h], n.output_bias, n.head_first_logit(h), n.head_outputs(h), false);
  }
  std::vector<double> q;
  for (int d = 0; d < branches; ++d) {
    for (int a = 0; a < branch_actions[d]; ++a) {
      double total = 0, weighted = 0;
      for (int z = 0; z < s.atoms; ++z) {
        double mean = 0;
        for (int b = 0; b < branch_actions[d]; ++b) mean += logits[d + 1][b * s.atoms + z] / branch_actions[d];
        const double p = std::exp(logits[0][z] + logits[d + 1][a * s.atoms + z] - mean);
        total += p;
        weighted += p * (support.vmin + support.spacing * z);
      }
      q.push_back(weighted / total);
    }
  }
  return q;
}

TEST(DonorRow, IsUniformAmongTheOtherRows) {
  constexpr int batch = 8, steps = 4000;
  for (const std::uint32_t row : {0u, 3u, 7u}) {
    std::vector<int> counts(batch, 0);
    for (int step = 0; step < steps; ++step) ++counts[donor_row(key, step, 1, row, batch, row, batch)];
    EXPECT_EQ(counts[row], 0);
    const double expected = steps / (batch - 1.0);
    for (std::uint32_t r = 0; r < batch; ++r) {
      if (r == row) continue;
      EXPECT_NEAR(counts[r], expected, 5 * std::sqrt(expected));
    }
  }
}

TEST(DonorRow, DiffersByRowGroupAndStep) {
  std::set<std::vector<std::uint32_t>> seen;
  for (std::uint32_t group = 0; group < 3; ++group) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<std::uint32_t> donors;
      for (std::uint32_t k = 0; k < 64; ++k) donors.push_back(donor_row(key, step, group, k, 64, 0, 1u << 20));
      EXPECT_GT(std::set<std::uint32_t>(donors.begin(), donors.end()).size(), 60u);
      seen.insert(donors);
    }
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(DonorRow, OfTwoRowsIsTheOtherOne) {
  for (std::uint64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(donor_row(key, step, 0, 0, 2, 0, 2), 1u);
    EXPECT_EQ(donor_row(key, step, 0, 1, 2, 1, 2), 0u);
  }
}

TEST(RelativeChange, IsUndefinedWhereAllQAreZero) {
  EXPECT_DOUBLE_EQ(relative_change(3, 4), 0.75);
  EXPECT_EQ(relative_change(0, 4), 0);
  EXPECT_TRUE(std::isnan(relative_change(0, 0)));
  EXPECT_TRUE(std::isnan(relative_change(3, 0)));
  EXPECT_TRUE(std::isnan(relative_change(NAN, 4)));
}

template <class Space>
struct CausalDelta : testing::Test {};
template <class First, class... Spaces>
struct SpaceList {
  using Types = testing::Types<Spaces...>;
};
#define VULPES_AND_SPACE(S) , S
using HostSpaces = SpaceList < void VULPES_FOR_EACH_HOST_SPACE(VULPES_AND_SPACE)
> ::Types;
TYPED_TEST_SUITE(CausalDelta, HostSpaces);

TYPED_TEST(CausalDelta, IsThatOfAPlainComputation) {
  constexpr int batch = 48, rows = 20;  // not a multiple of a tile
  Measurement<TypeParam> m(batch, rows);
  const auto state = [&](int r) { return std::vector<double>(&m.states(r, 0), &m.states(r, 0) + 8); };
  const auto q = [&](const std::vector<double>& x) { return plain_q(m.network, m.parameters.data(), m.support, x); };
  for (const std::uint64_t step : {0, 7}) {
    const std::vector<double> deltas = m.run(step);
    ASSERT_EQ(deltas.size(), 3u);
    for (std::uint32_t g = 0; g < 3; ++g) {
      double change = 0, size = 0;
      for (int k = 0; k < rows; ++k) {
        const int row = k * batch / rows;
        std::vector<double> x = state(row);
        const auto before = q(x);
        const auto other = state(static_cast<int>(donor_row(key, step, g, k, rows, row, batch)));
        for (int j = 0; j < 8; ++j) {
          if (m.groups.of[j] == static_cast<int>(g)) x[j] = other[j];
        }
        const auto after = q(x);
        for (int a = 0; a < total_actions; ++a) {
          change += std::abs(before[a] - after[a]);
          size += std::abs(before[a]);
        }
      }
      EXPECT_GT(deltas[g], 0.01);
      EXPECT_NEAR(deltas[g] / (change / size), 1.0, 2e-5) << "group " << g;
    }
  }
}

TYPED_TEST(CausalDelta, OfGroupsThatDoNotMatterIsExactlyZero) {
  Measurement<TypeParam> m(32, 32);
  const Block<float> first = m.weight(m.network.trunk_weight[0]);
  for (int i = 0; i < first.rows; ++i) {
    for (int j = 0; j < first.columns; ++j) {
      if (m.groups.of[j] != 1) first.data[i * first.stride + j] = 0;
    }
  }
  const auto deltas = m.run();
  EXPECT_EQ(deltas[0], 0.0);
  EXPECT_GT(deltas[1], 0.01);
  EXPECT_EQ(deltas[2], 0.0);
}

TYPED_TEST(CausalDelta, IsUndefinedWhereAllQAreZero) {
  Measurement<TypeParam> m(32, 16);
  m.support = Support<float>{0, 0, 11};
  for (const double delta : m.run()) EXPECT_TRUE(std::isnan(delta));
}

TYPED_TEST(CausalDelta, TakesItsRowsFromTheWholeBatch) {
  Measurement<TypeParam> m(64, 16);
  m.run();
  for (int k = 0; k < 16; ++k) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(m.buffers.activations.input(k, j), m.states(4 * k, j));
  }
}

TYPED_TEST(CausalDelta, RecordsAreARingOverMeasurements) {
  Measurement<TypeParam> m(32, 16, 3);
  std::vector<std::vector<double>> deltas;
  for (std::uint64_t i = 0; i < 5; ++i) deltas.push_back(m.run(100 * i, 100));
  EXPECT_NE(deltas[0], deltas[1]);
  for (int i = 2; i < 5; ++i) {
    for (int g = 0; g < 3; ++g) EXPECT_EQ(m.buffers.records(i % 3, g), deltas[i][g]);
  }
}

TYPED_TEST(CausalDelta, LeavesWhatItReadsAsItIs) {
  Measurement<TypeParam> m(32, 16);
  const std::vector<float> states(m.states.data(), m.states.data() + m.states.size());
  const std::vector<float> parameters = download(m.parameters);
  m.run(3);
  EXPECT_EQ(states, std::vector<float>(m.states.data(), m.states.data() + m.states.size()));
  EXPECT_EQ(parameters, download(m.parameters));
  EXPECT_EQ(m.iteration(), 3u);
}

TYPED_TEST(CausalDelta, MoreRowsThanTheBatchAreRefused) {
  Measurement<TypeParam> m(16, 32);
  EXPECT_THROW(m.run(), RunError);
}

#if defined(KOKKOS_ENABLE_SERIAL) && defined(KOKKOS_ENABLE_OPENMP)
TEST(CausalDelta, IsTheSameOnSerialAndOpenMP) {
  for (const int rows : {16, 100}) {
    Measurement<Kokkos::Serial> serial(128, rows);
    Measurement<Kokkos::OpenMP> openmp(128, rows);
    EXPECT_EQ(serial.run(9), openmp.run(9));
  }
}
#endif

TEST(FeatureGroups, OfTheFeaturesOfAMarket) {
  market::Bars bars = market::generate_synthetic({}, {1, 0}, 0, 300);
  for (const char* name : {"funding", "range", "account", "macd"}) {
    bars.extra.push_back({name, std::vector<double>(bars.size(), 1.0)});
  }
  const market::FeatureSet features = market::compute_features(bars, {});
  const FeatureGroups groups = feature_groups(features, 40);
  EXPECT_EQ(groups.names,
            (std::vector<std::string>{"returns", "volatility", "means", "range", "volume", "oscillators", "calendar",
                                      "funding", "range_column", "account_column", "macd", "account"}));
  ASSERT_EQ(groups.of.size(), 40u);
  const auto group = [&](const std::string& name, int occurrence = 0) {
    for (std::size_t j = 0; j < features.names.size(); ++j) {
      if (features.names[j] == name && occurrence-- == 0) return groups.names[static_cast<std::size_t>(groups.of[j])];
    }
    return std::string("no such feature");
  };
  EXPECT_EQ(group("return_128"), "returns");
  EXPECT_EQ(group("mean_distance_64"), "means");
  EXPECT_EQ(group("volume_z_64"), "volume");
  EXPECT_EQ(group("rsi_14"), "oscillators");
  EXPECT_EQ(group("macd"), "oscillators");
  EXPECT_EQ(group("macd", 1), "macd");
  EXPECT_EQ(group("bollinger_20"), "oscillators");
  EXPECT_EQ(group("week_cos"), "calendar");
  for (std::size_t j = features.names.size(); j < 40; ++j) EXPECT_EQ(groups.names[groups.of[j]], "account") << j;
}

}  // namespace
}  // namespace vulpes::kernels
