#include "vulpes/agent/agent.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/config_io.hpp"

namespace vulpes::agent {
namespace {

const kernels::NetworkShape shape{40, 32, 24, 2, 16, 11};

TEST(StateWidth, FeaturesAndFiveAccountInputsPaddedToEight) {
  EXPECT_EQ(state_width(3), 8);
  EXPECT_EQ(state_width(4), 16);
  EXPECT_EQ(state_width(23), 32);
  EXPECT_EQ(state_width(27), 32);
}

// "Nothing copies weights between two stores; a test compares addresses for every layer."
TEST(FlatBuffer, EveryLayersMatrixAliasesItsSlice) {
  const kernels::Network network(shape);
  std::vector<float> buffer(network.layout.size(), 0.0f);
  std::vector<int> owner(buffer.size(), -1);
  std::set<int> seen;
  const auto expect_alias = [&](int tensor, int rows, int columns) {
    const TensorSlice& t = network.layout[tensor];
    SCOPED_TRACE(t.name);
    const Block<float> block = network.matrix(buffer.data(), tensor);
    EXPECT_EQ(block.data, buffer.data() + t.offset);
    EXPECT_EQ(block.rows, rows);
    EXPECT_EQ(block.columns, columns);
    EXPECT_EQ(block.stride, columns);
    EXPECT_EQ(t.offset * sizeof(float) % 128, 0u);
    EXPECT_TRUE(seen.insert(tensor).second) << "two layers share a tensor";
    for (std::size_t i = 0; i < t.size(); ++i) {
      ASSERT_LT(t.offset + i, buffer.size());
      ASSERT_EQ(owner[t.offset + i], -1) << "overlaps tensor " << owner[t.offset + i];
      owner[t.offset + i] = tensor;
    }
  };
  expect_alias(network.trunk_weight[0], 32, 40);
  expect_alias(network.trunk_bias[0], 1, 32);
  expect_alias(network.trunk_weight[1], 24, 32);
  expect_alias(network.trunk_bias[1], 1, 24);
  for (int l = 0; l < 2; ++l) {
    expect_alias(network.block_weight[l], 24, 24);
    expect_alias(network.block_bias[l], 1, 24);
  }
  for (int head = 0; head < kernels::heads; ++head) expect_alias(network.hidden_weight[head], 16, 24);
  expect_alias(network.hidden_bias, 1, 64);
  const int outputs[] = {11, 99, 33, 33};
  for (int head = 0; head < kernels::heads; ++head) expect_alias(network.output_weight[head], outputs[head], 16);
  expect_alias(network.output_bias, 1, 176);
  EXPECT_EQ(seen.size(), network.layout.tensors().size()) << "a tensor belongs to no layer";

  // The heads' first layers are one matrix, so they must follow each other without a hole.
  const Block<float> hidden = network.hidden_matrix(buffer.data());
  EXPECT_EQ(hidden.data, buffer.data() + network.layout[network.hidden_weight[0]].offset);
  EXPECT_EQ(hidden.rows, 64);
  for (int head = 0; head < kernels::heads; ++head) {
    EXPECT_EQ(hidden.rows_from(16 * head, 16).data, network.matrix(buffer.data(), network.hidden_weight[head]).data);
  }
}

template <class Space>
std::vector<float> logits_of(const Space& space, const kernels::Network& network,
                             const Vector<float, Space>& parameters, const kernels::Activations<Space, float>& a) {
  kernels::forward<Space, float>(space, network, parameters.data(), a, a.rows);
  space.fence("vulpes::test::forward");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), a.logits);
  return {host.data(), host.data() + host.size()};
}

/// A forward pass sees every change of the flat buffer at once, and only the flat buffer.
TEST(FlatBuffer, AForwardPassReadsNothingElse) {
  using Space = DefaultSpace;
  const Space space;
  const kernels::Network network(shape);
  const std::vector<float> initial = initial_parameters(network, {2, 1});
  const auto parameters = allocate_zeroed<Vector<float, Space>>(space, "vulpes::test::parameters", initial.size());
  const auto host = Kokkos::create_mirror_view(parameters);
  const auto upload = [&](const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), host.data());
    Kokkos::deep_copy(parameters, host);
  };
  const kernels::Activations<Space, float> a(space, shape, 16, "vulpes::test");
  Kokkos::deep_copy(a.input, 0.5f);
  upload(initial);
  const std::vector<float> first = logits_of(space, network, parameters, a);
  EXPECT_TRUE(std::any_of(first.begin(), first.end(), [](float v) { return v != 0; }));
  upload(std::vector<float>(initial.size(), 0.0f));
  const std::vector<float> zero = logits_of(space, network, parameters, a);
  EXPECT_TRUE(std::all_of(zero.begin(), zero.end(), [](float v) { return v == 0; }));
  upload(initial);
  EXPECT_EQ(logits_of(space, network, parameters, a), first);
  // Every weight matrix takes part.
  for (const TensorSlice& t : network.layout.tensors()) {
    if (!t.is_weight) continue;
    std::vector<float> changed = initial;
    std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(t.offset), t.size(), 0.0f);
    upload(changed);
    EXPECT_NE(logits_of(space, network, parameters, a), first) << t.name;
  }
}

TEST(InitialParameters, BoundedByFanInAndAFunctionOfTheKey) {
  const kernels::Network network(shape);
  const std::vector<float> p = initial_parameters(network, {2, 1});
  EXPECT_EQ(p, initial_parameters(network, {2, 1}));
  EXPECT_NE(p, initial_parameters(network, {3, 1}));
  EXPECT_NE(p, initial_parameters(network, {2, 2}));
  for (const TensorSlice& t : network.layout.tensors()) {
    float largest = 0;
    double squares = 0;
    for (std::size_t i = 0; i < t.size(); ++i) {
      largest = std::max(largest, std::fabs(p[t.offset + i]));
      squares += static_cast<double>(p[t.offset + i]) * p[t.offset + i];
    }
    const double bound = (t.name.rfind("output.", 0) == 0 ? 0.1 : 1.0) * std::sqrt(6.0 / t.columns);
    if (!t.is_weight) {
      EXPECT_EQ(largest, 0.0f) << t.name;
    } else {
      EXPECT_LE(largest, bound * (1 + 1e-6)) << t.name;
      EXPECT_GT(largest, 0.9 * bound) << t.name;
      EXPECT_NEAR(std::sqrt(squares / static_cast<double>(t.size())), bound / std::sqrt(3.0), 0.15 * bound) << t.name;
    }
  }
}

TEST(ParameterHash, IsFnv1aOfTheBytes) {
  EXPECT_EQ(parameter_hash({}), "cbf29ce484222325");
  // FNV-1a of four zero bytes, as published test vectors have it.
  EXPECT_EQ(parameter_hash({0.0f}), "4d25767f9dce13f5");
  std::vector<float> p(100, 1.0f);
  const std::string before = parameter_hash(p);
  p[57] = std::nextafter(1.0f, 2.0f);
  EXPECT_NE(parameter_hash(p), before);
  EXPECT_NE(parameter_hash({0.0f}), parameter_hash({-0.0f}));
}

class PolicyFile : public testing::Test {
 protected:
  PolicyFile()
      : path_((std::filesystem::temp_directory_path() / ("vulpes_policy_" + std::to_string(::getpid()) + ".h5"))
                  .string()) {
    policy_.config.network = {32, 24, 2, 16, 11};
    policy_.config.agent.gamma = 0.9;
    policy_.config.features.clip = 4;
    policy_.shape = shape;
    policy_.vmin = -1.5;
    policy_.vmax = 2.5;
    policy_.reward_scale = 60.25;
    policy_.feature_names = {"return_1", "a name with spaces", "volatility_16"};
    policy_.normaliser.median = {0.1, -0.2, 1e-300};
    policy_.normaliser.scale = {1, 2, 3};
    policy_.normaliser.clip = 4;
    policy_.parameters = initial_parameters(kernels::Network(shape), {2, 1});
    policy_.step = 12345678901;
    policy_.fold = 3;
    policy_.score = -1.25e-4;
    policy_.seen = {3600, 10, 30, {10, 20, 30}, {1.5, 2.5, 3.5}};
  }
  ~PolicyFile() override { std::filesystem::remove(path_); }

  std::string path_;
  Policy policy_;
};

TEST_F(PolicyFile, ReadsBackAllThatWasWritten) {
  save_policy(path_, policy_);
  const Policy p = load_policy(path_);
  EXPECT_TRUE(io::difference(p.config, policy_.config).empty());
  EXPECT_EQ(p.shape, policy_.shape);
  EXPECT_EQ(p.vmin, policy_.vmin);
  EXPECT_EQ(p.vmax, policy_.vmax);
  EXPECT_EQ(p.reward_scale, policy_.reward_scale);
  EXPECT_EQ(p.feature_names, policy_.feature_names);
  EXPECT_EQ(p.normaliser.median, policy_.normaliser.median);
  EXPECT_EQ(p.normaliser.scale, policy_.normaliser.scale);
  EXPECT_EQ(p.normaliser.clip, policy_.normaliser.clip);
  EXPECT_EQ(p.step, policy_.step);
  EXPECT_EQ(p.fold, policy_.fold);
  EXPECT_EQ(p.score, policy_.score);
  EXPECT_EQ(p.seen.bar_seconds, 3600);
  EXPECT_EQ(p.seen.first, 10);
  EXPECT_EQ(p.seen.last, 30);
  EXPECT_EQ(p.seen.time, policy_.seen.time);
  EXPECT_EQ(p.seen.close, policy_.seen.close);
  ASSERT_EQ(p.parameters.size(), policy_.parameters.size());
  EXPECT_EQ(std::memcmp(p.parameters.data(), policy_.parameters.data(), p.parameters.size() * sizeof(float)), 0);
}

TEST(SeenBars, AreRecognisedByTimeAndClose) {
  market::Bars bars;
  for (int i = 0; i < 1000; ++i) {
    bars.time.push_back(std::int64_t{3'600'000'000'000} * i);
    for (auto column : {&market::Bars::open, &market::Bars::high, &market::Bars::low, &market::Bars::close}) {
      (bars.*column).push_back(100 + i % 37);
    }
    bars.volume.push_back(1);
    bars.segment.push_back(0);
  }
  const SeenBars seen = SeenBars::of(bars, 100, 700);
  EXPECT_EQ(seen.bar_seconds, 3600);
  EXPECT_EQ(seen.first, bars.time[100]);
  EXPECT_EQ(seen.last, bars.time[699]);
  EXPECT_EQ(seen.time.size(), 256u);
  EXPECT_TRUE(seen.in(bars));
  EXPECT_TRUE(seen.in(bars.slice(680, 1000))) << "the last of them are among these";
  EXPECT_FALSE(seen.in(bars.slice(700, 1000)));
  EXPECT_FALSE(seen.in(bars.slice(0, 100)));
  market::Bars other = bars;  // another market at the same times
  for (double& c : other.close) c += 1;
  EXPECT_FALSE(seen.in(other));
  other = bars;  // and one that has the price in common now and then
  for (std::size_t i = 0; i < other.size(); ++i) other.close[i] += i % 3 == 0 ? 0 : 1;
  EXPECT_FALSE(seen.in(other));
  EXPECT_FALSE(SeenBars{}.in(bars));
}

TEST_F(PolicyFile, HoldsOneDatasetATensor) {
  save_policy(path_, policy_);
  const io::H5Reader file(path_);
  const kernels::Network network(shape);
  EXPECT_EQ(file.list("parameters").size(), network.layout.tensors().size());
  for (const TensorSlice& t : network.layout.tensors()) {
    const io::Extents extents = file.extents("parameters/" + t.name);
    if (t.is_weight) {
      EXPECT_EQ(extents, (io::Extents{static_cast<std::uint64_t>(t.rows), static_cast<std::uint64_t>(t.columns)}))
          << t.name;
    } else {
      EXPECT_EQ(extents, (io::Extents{static_cast<std::uint64_t>(t.columns)})) << t.name;
    }
  }
}

TEST_F(PolicyFile, AFileOfAnotherKindOrFormatOrShapeIsRefused) {
  const auto message = [&] {
    try {
      load_policy(path_);
    } catch (const RunError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  {
    io::H5Writer file(path_);
    file.write_scalar("step", std::int64_t{1});
    file.finish();
  }
  EXPECT_NE(message().find(path_ + ": not a Vulpes policy"), std::string::npos) << message();
  {
    io::H5Writer file(path_);
    file.write_string("kind", "vulpes policy");
    file.write_scalar<std::int64_t>("format", 2);
    file.finish();
  }
  EXPECT_NE(message().find("format 2"), std::string::npos) << message();
  {
    Policy other = policy_;
    other.shape.hidden1 = 40;  // parameters of another network
    other.parameters.resize(kernels::Network(other.shape).layout.size());
    save_policy(path_, policy_);
    io::H5Writer file(path_);
    write_policy(file, policy_);
    file.write_scalar<std::int64_t>("more", 1);
    file.finish();
    EXPECT_EQ(message(), "no error") << "more datasets do no harm";
  }
}

}  // namespace
}  // namespace vulpes::agent
