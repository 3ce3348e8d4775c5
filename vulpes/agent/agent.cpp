#include "vulpes/agent/agent.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/kernels/formulas/account_state.hpp"

namespace vulpes::agent {
namespace {

/// Strings of a list, one a line.
std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

}  // namespace

int state_width(int feature_columns) {
  const int inputs = feature_columns + kernels::account_input_count;
  return (inputs + kernels::width_multiple - 1) / kernels::width_multiple * kernels::width_multiple;
}

kernels::NetworkShape network_shape(const io::NetworkConfig& c, int feature_columns) {
  return {state_width(feature_columns),        static_cast<int>(c.hidden1),     static_cast<int>(c.hidden2),
          static_cast<int>(c.residual_blocks), static_cast<int>(c.head_hidden), static_cast<int>(c.atoms)};
}

std::vector<float> initial_parameters(const kernels::Network& network, RandomKey key) {
  std::vector<float> parameters(network.layout.size(), 0.0f);
  for (std::size_t k = 0; k < network.layout.tensors().size(); ++k) {
    const TensorSlice& t = network.layout.tensors()[k];
    if (!t.is_weight) continue;
    const bool output = t.name.rfind("output.", 0) == 0;
    const float bound = static_cast<float>((output ? 0.1 : 1.0) * std::sqrt(6.0 / t.columns));
    for (std::size_t i = 0; i < t.size(); ++i) {
      const auto words = random_words(key, Purpose::initial_weights, k, static_cast<std::uint32_t>(i));
      parameters[t.offset + i] = bound * (2.0f * uniform_float(words[0]) - 1.0f);
    }
  }
  return parameters;
}

std::string parameter_hash(const std::vector<float>& parameters) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const float p : parameters) {
    std::uint32_t bits;
    std::memcpy(&bits, &p, sizeof(bits));
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ ((bits >> (8 * byte)) & 0xff)) * 0x100000001b3ULL;
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

SeenBars SeenBars::of(const market::Bars& bars, std::size_t begin, std::size_t end) {
  constexpr std::size_t most = 256;
  SeenBars seen;
  if (begin >= end) return seen;
  seen.bar_seconds = market::bar_seconds(bars);
  const auto from = bars.time.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto [first, last] = std::minmax_element(from, from + static_cast<std::ptrdiff_t>(end - begin));
  seen.first = *first;
  seen.last = *last;
  const std::size_t count = std::min(most, end - begin);
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = begin + (end - begin) * k / count;
    seen.time.push_back(bars.time[i]);
    seen.close.push_back(bars.close[i]);
  }
  return seen;
}

bool SeenBars::in(const market::Bars& bars) const {
  std::size_t found = 0, equal = 0;
  for (std::size_t k = 0; k < time.size(); ++k) {
    const auto at = std::lower_bound(bars.time.begin(), bars.time.end(), time[k]);
    if (at == bars.time.end() || *at != time[k]) continue;
    ++found;
    equal += bars.close[static_cast<std::size_t>(at - bars.time.begin())] == close[k];
  }
  return 2 * equal > found;
}

void write_tensors(io::H5Writer& file, const std::string& group, const ParameterLayout& layout, const float* buffer) {
  for (const TensorSlice& t : layout.tensors()) {
    const io::Extents extents =
        t.is_weight ? io::Extents{static_cast<std::uint64_t>(t.rows), static_cast<std::uint64_t>(t.columns)}
                    : io::Extents{static_cast<std::uint64_t>(t.columns)};
    file.write(group + "/" + t.name, buffer + t.offset, extents);
  }
}

void read_tensors(const io::H5Reader& file, const std::string& group, const ParameterLayout& layout, float* buffer) {
  for (const TensorSlice& t : layout.tensors()) file.read_into(group + "/" + t.name, buffer + t.offset, t.size());
}

void write_policy(io::H5Writer& file, const Policy& p) {
  file.write_string("kind", "vulpes policy");
  file.write_scalar<std::int64_t>("format", 1);
  file.write_string("config", io::to_toml(p.config));
  file.write_scalar<std::int64_t>("network/state", p.shape.state);
  file.write_scalar<std::int64_t>("network/hidden1", p.shape.hidden1);
  file.write_scalar<std::int64_t>("network/hidden2", p.shape.hidden2);
  file.write_scalar<std::int64_t>("network/blocks", p.shape.blocks);
  file.write_scalar<std::int64_t>("network/head_hidden", p.shape.head_hidden);
  file.write_scalar<std::int64_t>("network/atoms", p.shape.atoms);
  file.write_scalar("support/vmin", p.vmin);
  file.write_scalar("support/vmax", p.vmax);
  file.write_scalar("reward_scale", p.reward_scale);
  file.write_string("features/names", join_lines(p.feature_names));
  file.write("features/median", p.normaliser.median);
  file.write("features/scale", p.normaliser.scale);
  file.write_scalar("step", p.step);
  file.write_scalar<std::int64_t>("fold", p.fold);
  file.write_scalar("score", p.score);
  file.write_scalar("seen/bar_seconds", p.seen.bar_seconds);
  file.write("seen/range", std::vector<std::int64_t>{p.seen.first, p.seen.last});
  file.write("seen/time", p.seen.time);
  file.write("seen/close", p.seen.close);
  write_tensors(file, "parameters", kernels::Network(p.shape).layout, p.parameters.data());
}

Policy read_policy(const io::H5Reader& file) {
  throw_if<RunError>(!file.has("kind") || file.read_string("kind") != "vulpes policy",
                     file.path() + ": not a Vulpes policy; give a file of a run's checkpoints/ folder");
  const auto format = file.read_scalar<std::int64_t>("format");
  throw_if<RunError>(format != 1,
                     file.path() + ": policy format " + std::to_string(format) + "; this program reads format 1");
  Policy p;
  p.config = io::config_from_toml(file.read_string("config"), file.path());
  const auto width = [&](const char* name) {
    return static_cast<int>(file.read_scalar<std::int64_t>(std::string("network/") + name));
  };
  p.shape = {width("state"), width("hidden1"), width("hidden2"), width("blocks"), width("head_hidden"), width("atoms")};
  p.vmin = file.read_scalar<double>("support/vmin");
  p.vmax = file.read_scalar<double>("support/vmax");
  p.reward_scale = file.read_scalar<double>("reward_scale");
  p.feature_names = split_lines(file.read_string("features/names"));
  p.normaliser.median = file.read<double>("features/median");
  p.normaliser.scale = file.read<double>("features/scale");
  p.normaliser.clip = p.config.features.clip;
  p.step = file.read_scalar<std::int64_t>("step");
  p.fold = static_cast<int>(file.read_scalar<std::int64_t>("fold"));
  p.score = file.read_scalar<double>("score");
  if (file.has("seen/range")) {
    p.seen.bar_seconds = file.read_scalar<double>("seen/bar_seconds");
    std::int64_t range[2];
    file.read_into("seen/range", range, 2);
    p.seen.first = range[0];
    p.seen.last = range[1];
    p.seen.time = file.read<std::int64_t>("seen/time");
    p.seen.close = file.read<double>("seen/close");
    throw_if<RunError>(p.seen.time.size() != p.seen.close.size(), file.path() + ": 'seen' has unequal lengths");
  }
  const kernels::Network network(p.shape);
  p.parameters.assign(network.layout.size(), 0.0f);
  read_tensors(file, "parameters", network.layout, p.parameters.data());
  return p;
}

void save_policy(const std::string& path, const Policy& policy) {
  io::H5Writer file(path);
  write_policy(file, policy);
  file.finish();
}

Policy load_policy(const std::string& path) { return read_policy(io::H5Reader(path)); }

}  // namespace vulpes::agent
