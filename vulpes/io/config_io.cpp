#include "vulpes/io/config_io.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/records.hpp"

namespace vulpes::io {
namespace {

using Problem = std::optional<std::string>;

std::string quoted(const std::string& text) { return "'" + text + "'"; }

std::string joined(const std::vector<std::string>& parts, const std::string& separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::string type_name(const std::int64_t&) { return "integer"; }
std::string type_name(const double&) { return "number"; }
std::string type_name(const bool&) { return "true or false"; }
std::string type_name(const std::string&) { return "text"; }
template <class T>
std::string type_name(const std::vector<T>&) {
  return "list of " + type_name(T{}) + "s";
}

// Values as TOML.

std::string toml_text(std::int64_t value) { return std::to_string(value); }
std::string toml_text(bool value) { return value ? "true" : "false"; }
std::string toml_text(double value) {
  const std::string text = number_text(value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
std::string toml_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(byte));
      text += escape;
    } else {
      text += c;
    }
  }
  return text + "\"";
}
template <class T>
std::string toml_text(const std::vector<T>& values) {
  std::vector<std::string> parts;
  for (const T& value : values) parts.push_back(toml_text(value));
  return "[" + joined(parts, ", ") + "]";
}

// Limits of a value.

std::string range_text(const Bounds& bounds) {
  const bool low = bounds.low > -1e300, high = bounds.high < 1e300;
  if (low && high) return number_text(bounds.low) + " ... " + number_text(bounds.high);
  if (low) return "at least " + number_text(bounds.low);
  if (high) return "at most " + number_text(bounds.high);
  return "any";
}

template <class Number>
requires std::is_arithmetic_v<Number> Problem problem_of(const Number& value, const Bounds& bounds) {
  const auto number = static_cast<double>(value);
  if (!std::isfinite(number)) return "is not finite";
  if (number < bounds.low || number > bounds.high) return "is out of range (" + range_text(bounds) + ")";
  return {};
}
Problem problem_of(const std::string& value, const Choices& choices) {
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) return {};
  const std::string near = nearest_name(value, choices);
  return "is none of " + joined(choices, ", ") + (near.empty() ? "" : "; did you mean " + quoted(near) + "?");
}
Problem problem_of(const bool&, const Choices&) { return {}; }
template <class T, class Limits>
Problem problem_of(const std::vector<T>& values, const Limits& limits) {
  for (const T& value : values) {
    if (const Problem problem = problem_of(value, limits)) return "has " + toml_text(value) + ", which " + *problem;
  }
  return {};
}

/// Full message of a value that `problem_of` refuses.
template <class T, class Limits>
Problem refusal(const std::string& name, const T& value, const Limits& limits) {
  if (const Problem problem = problem_of(value, limits))
    return quoted(name) + " = " + toml_text(value) + " " + *problem;
  return {};
}

// From TOML nodes.

std::string node_type(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

bool convert(const toml::node& node, std::int64_t& value) {
  if (const auto* integer = node.as_integer()) {
    value = integer->get();
    return true;
  }
  // 1e6 is a whole number to everybody but TOML; above 2^53 a double no longer says which one is meant.
  if (const auto* number = node.as_floating_point()) {
    const double v = number->get();
    if (!(std::abs(v) <= 9007199254740992.0) || v != std::floor(v)) return false;
    value = static_cast<std::int64_t>(v);
    return true;
  }
  return false;
}
bool convert(const toml::node& node, double& value) {
  if (const auto* integer = node.as_integer()) {
    value = static_cast<double>(integer->get());
    return true;
  }
  if (const auto* number = node.as_floating_point()) {
    value = number->get();
    return true;
  }
  return false;
}
bool convert(const toml::node& node, bool& value) {
  const auto* boolean = node.as_boolean();
  if (boolean != nullptr) value = boolean->get();
  return boolean != nullptr;
}
bool convert(const toml::node& node, std::string& value) {
  const auto* text = node.as_string();
  if (text != nullptr) value = text->get();
  return text != nullptr;
}
template <class T>
bool convert(const toml::node& node, std::vector<T>& values) {
  const auto* array = node.as_array();
  if (array == nullptr) return false;
  values.clear();
  for (const toml::node& element : *array) {
    T value{};
    if (!convert(element, value)) return false;
    values.push_back(std::move(value));
  }
  return true;
}

std::string given_text(const toml::node& node) {
  if (const auto* number = node.as_floating_point()) return number_text(number->get());
  return node_type(node);
}

/// Assigns `node` to the setting, or says why not.
template <class T, class Limits>
Problem assign(const std::string& name, T& field, const Limits& limits, const toml::node& node) {
  T value{};
  if (!convert(node, value)) {
    return quoted(name) + " must be " +
           (type_name(field)[0] == 'i'   ? "an "
            : type_name(field)[0] == 't' ? ""
                                         : "a ") +
           type_name(field) + ", not " + given_text(node);
  }
  if (Problem problem = refusal(name, value, limits)) return problem;
  field = std::move(value);
  return {};
}

/// A value of the file under its dotted name.
struct Leaf {
  std::string name;
  const toml::node* node;
  toml::source_position key_at;
};

void flatten(const toml::table& table, const std::string& prefix, std::vector<Leaf>& leaves) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const toml::table* inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      flatten(*inner, name + ".", leaves);
    } else {
      leaves.push_back({name, &node, key.source().begin});
    }
  }
}

std::set<std::string> section_names() {
  std::set<std::string> sections;
  for (const std::string& name : setting_names()) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      sections.insert(name.substr(0, dot));
    }
  }
  return sections;
}

std::string unknown_setting(const std::string& name) {
  const std::string near = nearest_name(name, setting_names());
  return "unknown setting " + quoted(name) + (near.empty() ? "" : "; did you mean " + quoted(near) + "?");
}

/// Applies one leaf to the configuration.
Problem apply(Config& config, const Leaf& leaf) {
  bool found = false;
  Problem problem;
  visit_settings(config, [&](const char* name, auto& field, const char*, const auto& limits) {
    if (found || leaf.name != name) return;
    found = true;
    problem = assign(leaf.name, field, limits, *leaf.node);
  });
  if (found) return problem;
  const std::set<std::string> sections = section_names();
  if (sections.count(leaf.name) > 0) {
    if (leaf.node->is_table()) return {};
    return quoted(leaf.name) + " is a section: write [" + leaf.name + "] and its settings below";
  }
  if (leaf.node->is_table()) {
    const std::string near = nearest_name(leaf.name, {sections.begin(), sections.end()});
    return "unknown section [" + leaf.name + "]" + (near.empty() ? "" : "; did you mean [" + near + "]?");
  }
  return unknown_setting(leaf.name);
}

std::string parse_problem(const toml::parse_error& error) {
  const std::string text(error.description());
  if (text.find("redefine") != std::string::npos) return "the same setting or section is given twice";
  return text;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// Edits (insert, delete, replace, swap of neighbours) from a to b.
int edit_distance(const std::string& a, const std::string& b) {
  const std::size_t n = a.size(), m = b.size();
  std::vector<std::vector<int>> d(n + 1, std::vector<int>(m + 1));
  for (std::size_t i = 0; i <= n; ++i) d[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= m; ++j) d[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= n; ++i) {
    for (std::size_t j = 1; j <= m; ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[n][m];
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

template <class T>
std::vector<T> repeated(std::vector<T> values) {
  std::vector<T> twice;
  std::sort(values.begin(), values.end());
  for (std::size_t k = 1; k < values.size(); ++k) {
    if (values[k] == values[k - 1] && (twice.empty() || twice.back() != values[k])) twice.push_back(values[k]);
  }
  return twice;
}

/// What settings must satisfy together, for settings that are within their own bounds.
std::vector<std::string> cross_problems(const Config& c) {
  std::vector<std::string> problems;
  const auto require = [&](bool holds, const std::string& message) {
    if (!holds) problems.push_back(message);
  };
  const auto text = [](auto value) { return number_text(static_cast<double>(value)); };
  const auto slots = [&](std::int64_t rows) { return (rows + c.collect.envs - 1) / c.collect.envs; };

  const auto require_distinct = [&](const char* name, const std::vector<std::int64_t>& values) {
    for (const std::int64_t value : repeated(values)) require(false, quoted(name) + " has " + text(value) + " twice");
  };
  require_distinct("features.return_horizons", c.features.return_horizons);
  require_distinct("features.volatility_windows", c.features.volatility_windows);
  require_distinct("features.mean_windows", c.features.mean_windows);
  if (c.features.macd.size() != 3) {
    require(false, "'features.macd' = " + toml_text(c.features.macd) + " needs three spans: fast, slow, signal");
  } else {
    require(c.features.macd[0] < c.features.macd[1],
            "'features.macd' = " + toml_text(c.features.macd) + " needs fast < slow");
  }

  const bool support_from_rewards = c.agent.vmin == 0 && c.agent.vmax == 0;
  require(support_from_rewards || c.agent.vmin < c.agent.vmax,
          "'agent.vmin' = " + text(c.agent.vmin) + " must be below 'agent.vmax' = " + text(c.agent.vmax) +
              " (both 0: from the rewards)");
  require(c.agent.n_step < c.collect.window,
          "'collect.window' = " + text(c.collect.window) + " must be above 'agent.n_step' = " + text(c.agent.n_step));

  // Tiles have 16 rows; tensors of whole groups of 8 columns lie side by side as one matrix (kernels/network.hpp).
  const auto require_multiple = [&](const char* name, std::int64_t value, std::int64_t of) {
    require(value % of == 0, quoted(name) + " = " + text(value) + " must be a multiple of " + text(of));
  };
  require_multiple("train.batch", c.train.batch, 16);
  require_multiple("network.hidden1", c.network.hidden1, 8);
  require_multiple("network.hidden2", c.network.hidden2, 8);
  require_multiple("network.head_hidden", c.network.head_hidden, 8);
  require(c.replay.rows >= c.train.batch,
          "'replay.rows' = " + text(c.replay.rows) + " must be at least 'train.batch' = " + text(c.train.batch));
  require(c.replay.learning_starts <= c.replay.rows, "'replay.learning_starts' = " + text(c.replay.learning_starts) +
                                                         " must be at most 'replay.rows' = " + text(c.replay.rows));
  // A row can be drawn once the n bars of its return are in the ring, and until the first of them is overwritten.
  require(slots(c.replay.rows) > c.agent.n_step,
          "'replay.rows' = " + text(c.replay.rows) + " must hold more than 'agent.n_step' = " + text(c.agent.n_step) +
              " rows of each of 'collect.envs' = " + text(c.collect.envs) + " accounts");
  require(slots(c.replay.learning_starts) >= c.agent.n_step,
          "'replay.learning_starts' = " + text(c.replay.learning_starts) + " must hold 'agent.n_step' = " +
              text(c.agent.n_step) + " rows of each of 'collect.envs' = " + text(c.collect.envs) + " accounts");
  // The smallest priority is epsilon^alpha; the tree counts in units of 2^-20.
  const double least = std::pow(c.replay.epsilon, c.replay.alpha);
  require(least >= std::ldexp(1.0, -20),
          "'replay.epsilon' = " + text(c.replay.epsilon) + " to the power 'replay.alpha' = " + text(c.replay.alpha) +
              " is " + text(least) + ", below the priority tree's unit 2^-20 = 9.54e-07: raise epsilon or lower alpha");

  require(c.folds.only <= c.folds.count,
          "'folds.only' = " + text(c.folds.only) + " must be at most 'folds.count' = " + text(c.folds.count));
  require(c.folds.kind != "single" || c.folds.count == 1,
          "'folds.count' = " + text(c.folds.count) + " needs 'folds.kind' = \"rolling\" or \"anchored\"");
  require(c.folds.validation_fraction + c.folds.test_fraction < 1,
          "'folds.validation_fraction' = " + text(c.folds.validation_fraction) +
              " and 'folds.test_fraction' = " + text(c.folds.test_fraction) + " leave no training bars");
  require(c.folds.embargo == 0 || c.folds.embargo > c.agent.n_step,
          "'folds.embargo' = " + text(c.folds.embargo) +
              " must be 0 or at least 'agent.n_step' + 1 = " + text(c.agent.n_step + 1));

  require(c.debug.inject || (c.inject.nan_step < 0 && c.inject.grad_spike_step < 0 && c.inject.capture == "none"),
          "'inject.nan_step', 'inject.grad_spike_step' and 'inject.capture' break things on purpose: set "
          "'debug.inject' = true to mean it");
  require(c.pruning.begin_fraction <= c.pruning.end_fraction,
          "'pruning.begin_fraction' = " + text(c.pruning.begin_fraction) +
              " must be at most 'pruning.end_fraction' = " + text(c.pruning.end_fraction));
  require(c.causal.every == 0 || c.causal.rows <= c.train.batch,
          "'causal.rows' = " + text(c.causal.rows) + " must be at most 'train.batch' = " + text(c.train.batch));
  return problems;
}

void throw_problems(const std::vector<std::string>& problems) {
  throw_if<InputError>(!problems.empty(), joined(problems, "\n"));
}

}  // namespace

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  const Config config;
  visit_settings(config, [&](const char* name, const auto&, const char*, const auto&) { names.emplace_back(name); });
  return names;
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  int best_distance = 1 + std::clamp(static_cast<int>(name.size()) / 3, 1, 3);
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance) std::tie(best, best_distance) = std::tuple(candidate, distance);
  }
  if (!best.empty()) return best;
  // The right setting in the wrong section, or without one.
  const std::string last = last_part(name);
  best_distance = last.size() > 4 ? 2 : 1;
  for (const std::string& candidate : candidates) {
    if (candidate.find('.') == std::string::npos) continue;
    const int distance = edit_distance(last, last_part(candidate));
    if (distance < best_distance) std::tie(best, best_distance) = std::tuple(candidate, distance);
  }
  return best;
}

Config read_config(const std::string& toml_path) {
  return toml_path.empty() ? Config{} : config_from_toml(read_file(toml_path), toml_path);
}

Config config_from_toml(const std::string& text, const std::string& source) {
  Config config;
  const auto place = [&](const toml::source_position& at) {
    return source + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": ";
  };
  toml::table table;
  try {
    table = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw InputError(place(error.source().begin) + parse_problem(error));
  }

  std::vector<Leaf> leaves;
  flatten(table, "", leaves);
  std::sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
    return std::tie(a.key_at.line, a.key_at.column) < std::tie(b.key_at.line, b.key_at.column);
  });
  std::vector<std::string> problems;
  for (const Leaf& leaf : leaves) {
    if (const Problem problem = apply(config, leaf)) problems.push_back(place(leaf.key_at) + *problem);
  }
  throw_problems(problems);
  return config;
}

void apply_setting(Config& config, const std::string& key_and_value) {
  const std::string where = "--set " + key_and_value + ": ";
  const std::size_t equals = key_and_value.find('=');
  throw_if<InputError>(equals == std::string::npos, where + "write name=value");
  const std::string name = trimmed(key_and_value.substr(0, equals));
  const std::string value = trimmed(key_and_value.substr(equals + 1));

  bool text_setting = false;
  visit_settings(config, [&](const char* known, auto& field, const char*, const auto&) {
    if (name == known) text_setting = std::is_same_v<std::decay_t<decltype(field)>, std::string>;
  });
  const bool bare = text_setting && (value.empty() || (value[0] != '"' && value[0] != '\''));

  toml::table table;
  try {
    table = toml::parse("value = " + (bare ? toml_text(value) : value));
  } catch (const toml::parse_error&) {
    // Either a number as TOML does not write it (.5), or a bare word: then its type is refused below, by name.
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = error == std::errc() && end == value.data() + value.size();
    table = toml::parse("value = " + toml_text(value));
    if (is_number) table.insert_or_assign("value", number);
  }
  throw_if<InputError>(table.size() != 1, where + "more than one value");
  const Leaf leaf{name, table.get("value"), {}};
  if (const Problem problem = apply(config, leaf)) throw InputError(where + *problem);
  throw_if<InputError>(leaf.node->is_table(), where + unknown_setting(name));
}

std::string to_toml(const Config& config) {
  struct Line {
    std::string setting, meaning;
  };
  std::vector<std::pair<std::string, std::vector<Line>>> sections;
  visit_settings(config, [&](const std::string& name, const auto& field, const char* meaning, const auto&) {
    const std::size_t dot = name.rfind('.');
    const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
    auto at = std::find_if(sections.begin(), sections.end(), [&](const auto& s) { return s.first == section; });
    if (at == sections.end()) at = sections.insert(sections.end(), {section, {}});
    at->second.push_back({last_part(name) + " = " + toml_text(field), meaning});
  });
  std::string text;
  for (const auto& [section, lines] : sections) {
    if (!section.empty()) text += (text.empty() ? "[" : "\n[") + section + "]\n";
    std::size_t width = 0;
    for (const Line& line : lines) width = std::max(width, std::min<std::size_t>(line.setting.size(), 44));
    for (const Line& line : lines) {
      text += line.setting + std::string(width > line.setting.size() ? width - line.setting.size() : 0, ' ');
      text += "  # " + line.meaning + "\n";
    }
  }
  return text;
}

namespace {

std::string limits_text(const std::int64_t&, const Bounds& bounds) { return "integer, " + range_text(bounds); }
std::string limits_text(const double&, const Bounds& bounds) {
  return range_text(bounds) == "any" ? "number" : "number, " + range_text(bounds);
}
std::string limits_text(const bool&, const Choices&) { return "true or false"; }
std::string limits_text(const std::string&, const Choices& choices) {
  return choices.empty() ? "text" : joined(choices, " | ");
}
template <class T, class Limits>
std::string limits_text(const std::vector<T>&, const Limits& limits) {
  return "list of " + limits_text(T{}, limits);
}

}  // namespace

std::string settings_help() {
  std::vector<std::vector<std::string>> lines;
  const Config config;
  visit_settings(config, [&](const char* name, const auto& field, const char* meaning, const auto& limits) {
    lines.push_back({name, limits_text(field, limits), toml_text(field), meaning});
  });
  std::size_t width[3] = {};
  for (const auto& line : lines) {
    for (int k = 0; k < 3; ++k) width[k] = std::max(width[k], line[k].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (int k = 0; k < 3; ++k) text += line[k] + std::string(width[k] - line[k].size() + 2, ' ');
    text += line[3] + "\n";
  }
  return text;
}

void check(const Config& config) {
  std::vector<std::string> problems;
  visit_settings(config, [&](const char* name, const auto& field, const char*, const auto& limits) {
    if (const Problem problem = refusal(name, field, limits)) problems.push_back(*problem);
  });
  throw_problems(problems);
  throw_problems(cross_problems(config));
}

std::vector<std::string> changed_settings(const Config& config) {
  const std::vector<std::string> names = difference(config, {});
  std::vector<std::string> changed;
  visit_settings(config, [&](const char* name, const auto& field, const char*, const auto&) {
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      changed.push_back(std::string(name) + " = " + toml_text(field));
    }
  });
  return changed;
}

std::vector<std::string> difference(const Config& a, const Config& b) {
  // Equal text is equal value: doubles are written with all their digits.
  std::vector<std::string> left, names;
  visit_settings(a,
                 [&](const char*, const auto& field, const char*, const auto&) { left.push_back(toml_text(field)); });
  std::size_t k = 0;
  visit_settings(b, [&](const char* name, const auto& field, const char*, const auto&) {
    if (left[k++] != toml_text(field)) names.emplace_back(name);
  });
  return names;
}

}  // namespace vulpes::io
