// What each launch declares: floating-point operations and compulsory bytes, as functions of shapes.
//
// Flops: an addition, a product, a comparison with its selection, a division or a root counts 1; an exponential
// `exponential_flops`, a logarithm or power `logarithm_flops` (what core/math.hpp spends on them). Integer work (random
// words, tree search) is no flops; where it is all that a launch does, it is declared as such. Bytes: every operand
// read once, every result written once; work space that one launch writes and reads again counts nothing. A measured
// figure may exceed the declared one where caches are too small.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "vulpes/kernels/backtest.hpp"
#include "vulpes/kernels/collect.hpp"
#include "vulpes/kernels/metrics.hpp"
#include "vulpes/kernels/optimise.hpp"

namespace vulpes::kernels {

struct Work {
  double flops = 0, bytes = 0;
  double integers = 0;  ///< operations of launches that have no flops
  Work& operator+=(const Work& other) {
    flops += other.flops;
    bytes += other.bytes;
    integers += other.integers;
    return *this;
  }
};

/// Everything but the number of rows that the work of a launch depends on.
struct WorkSizes {
  NetworkShape shape;
  int feature_columns = 0;  ///< F, of the market table
  int n_step = 1;
  int tree_levels = 1;  ///< of the replay's segment tree, the root included
  std::int64_t replay_rows = 0;
  bool per_branch = false;       ///< a target for each branch
  bool spectral_trunk = false;   ///< trunk, block and hidden matrices are bounded
  bool spectral_output = false;  ///< output matrices are bounded
  bool goals = false;            ///< states hold the gap to a goal, returns its bonus
  double hindsight_share = 0;    ///< of rows, relabelled
  bool cql = false;              ///< losses that are on
  bool auxiliary = false;
  bool diversity = false;
};

/// One launch: its label, and the rows (batch, both states of a batch, accounts) that it works on.
struct Launch {
  const char* label;
  int rows;
};

namespace work {

inline constexpr double exponential_flops = 22, logarithm_flops = 26;
/// Order, execution, booking and marking of one bar (market/account.hpp), its logarithm included.
inline constexpr double account_flops = 160;
/// The account's own inputs of one state: two log1p, a division, three factors.
inline constexpr double inputs_flops = 2 * logarithm_flops + 4;

/// The gap of one account's goal: its log growth, difference, clip.
inline double gap_flops(const WorkSizes& z) { return z.goals ? logarithm_flops + 3 : 0; }

/// C [m, n] = A [m, k] B [k, n], float: 2 m n k flops; each matrix once.
inline Work product(double m, double n, double k) { return {2 * m * n * k, 4 * (m * k + k * n + m * n)}; }
/// A layer over R rows, with bias and ReLU in the same pass.
inline Work layer(double rows, double out, double in) {
  Work w = product(rows, out, in);
  return w += {2 * rows * out, 4 * out};
}
/// dW [out, in] of a layer and, from the same read of its output gradient, db [out].
inline Work weight_gradient(double rows, double out, double in) {
  Work w = product(out, in, rows);
  return w += {rows * out, 4 * out};
}
/// dX [rows, in]; `masked`: also reads the ReLU's output; `accumulated`: also reads dX.
inline Work input_gradient(double rows, double out, double in, bool masked, bool accumulated) {
  Work w = product(rows, in, out);
  return w += {rows * in * (masked + accumulated), 4 * rows * in * (masked + accumulated)};
}
/// out [R, width] = f(a, b), element by element.
inline Work elements(double count, double reads) { return {count, 4 * count * (reads + 1)}; }

/// All heads' output products in one launch; R rows, `products` as given for one head.
template <class F>
Work each_head(const NetworkShape& s, const F& one) {
  Work sum;
  for (int head = 0; head < heads; ++head) sum += one(s.atoms * (head == 0 ? 1 : branch_actions[head - 1]));
  return sum;
}

/// Elements of the bounded matrices, of their right and left vectors.
struct SpectralSizes {
  double elements = 0, rows = 0, columns = 0;
  void add(double r, double c) {
    elements += r * c;
    rows += r;
    columns += c;
  }
};
inline SpectralSizes spectral_sizes(const WorkSizes& z) {
  const NetworkShape& s = z.shape;
  SpectralSizes n;
  if (z.spectral_trunk) {
    n.add(s.hidden1, s.state);
    n.add(s.hidden2, s.hidden1);
    for (int l = 0; l < s.blocks; ++l) n.add(s.hidden2, s.hidden2);
    for (int h = 0; h < heads; ++h) n.add(s.head_hidden, s.hidden2);
  }
  if (z.spectral_output) {
    n.add(s.atoms, s.head_hidden);
    for (const int actions : branch_actions) n.add(actions * s.atoms, s.head_hidden);
  }
  return n;
}

/// Flops of Q of every action of one row (action_values.hpp): base, then an expectation an action.
inline double action_value_flops(const NetworkShape& s) {
  const double a = total_actions, d = branches, z = s.atoms;
  return z * (2 * a + 3 * d) + z * a * (7 + exponential_flops);
}
/// Flops for one row of losses on Q of all actions at s: base and distributions of the branches that need them, CQL,
/// the label's cross entropy, their gradient on each action's atoms.
inline double action_loss_flops(const WorkSizes& sizes) {
  if (!sizes.cql && !sizes.auxiliary) return 0;
  const double z = sizes.shape.atoms, all = total_actions, first = branch_actions[0];
  const double a = sizes.cql ? all : first, d = sizes.cql ? branches : 1;
  double flops = z * (2 * a + 3 * d) + z * a * (7 + exponential_flops) + 6 * a;  // as action_value_flops
  flops += z * a * 7;                                                            // beyond the chosen action's spread
  if (sizes.cql) flops += all * (11 + exponential_flops) + branches * logarithm_flops;
  if (sizes.auxiliary) flops += first * (28 + 2 * exponential_flops) + logarithm_flops;
  return flops;
}
/// Flops of the loss for one row: Q(s'), distribution and projection of the target, C51 and MSE with their gradients,
/// the gradient's way to all logits; losses on Q(s, a).
inline double loss_flops(const WorkSizes& sizes) {
  const double a = total_actions, d = branches, z = sizes.shape.atoms, targets = sizes.per_branch ? d : 1;
  const double chosen = z * (3 * a + 3 * d);
  const double next = chosen + z * d * (2 * exponential_flops + 6);
  const double project = z * (sizes.per_branch ? 0 : d) + 10 * z * targets;
  const double branch = chosen + z * d * (3 * exponential_flops + logarithm_flops + 24);
  const double spread = z * (3 * d + 3 * a + 3);
  return action_value_flops(sizes.shape) + next + project + branch + spread + action_loss_flops(sizes);
}
/// Flops and bytes of one account's bar without the network: actions, the bar, the next state.
inline Work account_bar(const WorkSizes& z, double account_bytes, double record_bytes) {
  const NetworkShape& s = z.shape;
  return {action_value_flops(s) + account_flops + inputs_flops + gap_flops(z),
          4.0 * s.logits() + 2 * sizeof(market::Bar) + 2 * account_bytes + record_bytes +
              4.0 * (z.feature_columns + s.state)};
}

}  // namespace work

/// Layers of a forward pass over `rows` rows, in order: launches of their own on a device, inside one on a host.
inline std::vector<Launch> forward_layers(const NetworkShape& s, int rows) {
  std::vector<Launch> all = {{"vulpes::forward::trunk1", rows}, {"vulpes::forward::trunk2", rows}};
  for (int l = 0; l < s.blocks; ++l) {
    all.push_back({"vulpes::forward::block", rows});
    all.push_back({"vulpes::forward::residual", rows});
  }
  all.push_back({"vulpes::forward::hidden", rows});
  all.push_back({"vulpes::forward::outputs", rows});
  return all;
}
/// Layers of the backward pass' way to all inputs, likewise.
inline std::vector<Launch> input_gradient_layers(const NetworkShape& s, int rows) {
  std::vector<Launch> all = {{"vulpes::backward::output_inputs", rows}, {"vulpes::backward::hidden_inputs", rows}};
  for (int l = 0; l < s.blocks; ++l) {
    all.push_back({"vulpes::backward::residual", rows});
    all.push_back({"vulpes::backward::block_inputs", rows});
  }
  all.push_back({"vulpes::backward::trunk2_inputs", rows});
  return all;
}
/// Layers whose weight gradients one launch (or as few as batches of products can hold) computes.
inline std::vector<Launch> weight_gradient_layers(const NetworkShape& s, int rows) {
  std::vector<Launch> all = {{"vulpes::backward::output_weights", rows}, {"vulpes::backward::hidden_weights", rows}};
  for (int l = 0; l < s.blocks; ++l) all.push_back({"vulpes::backward::block_weights", rows});
  all.push_back({"vulpes::backward::trunk2_weights", rows});
  all.push_back({"vulpes::backward::trunk1_weights", rows});
  return all;
}
inline int weight_gradient_launches(const NetworkShape& s) {
  constexpr int most = ProductBatch<float>::max_products;
  return (heads + 3 + s.blocks + most - 1) / most;
}

/// Work of one launch called `label` over `rows` rows; nothing for a label that has no entry.
inline std::optional<Work> work_of(std::string_view label, const WorkSizes& z, int rows) {
  using namespace work;
  const NetworkShape& s = z.shape;
  const double r = rows, h1 = s.hidden1, h2 = s.hidden2, hh = s.head_hidden, hidden = s.hidden_width(),
               logits = s.logits();
  const double parameters = static_cast<double>(Network(s).layout.parameter_count());
  constexpr int row_figures = row_outputs;
  const auto is = [&](std::string_view name) { return label == name; };

  if (is("vulpes::forward::trunk1")) return layer(r, h1, s.state);
  if (is("vulpes::forward::trunk2")) return layer(r, h2, h1);
  if (is("vulpes::forward::block")) return layer(r, h2, h2);
  if (is("vulpes::forward::residual")) return elements(r * h2, 2);
  if (is("vulpes::forward::hidden")) return layer(r, hidden, h2);
  if (is("vulpes::forward::outputs")) return each_head(s, [&](double out) { return product(out, r, hh); });

  if (is("vulpes::loss")) {  // logits of three networks in, the gradient and the rows' figures out
    return Work{r * loss_flops(z), r * (4 * 4 * logits + branches + 4 * (3 + row_figures) + 8 * z.auxiliary)};
  }
  if (is("vulpes::diversity")) {  // of the branches' activations; the gradient of all heads'
    constexpr double pairs = branches * (branches - 1) / 2;
    return Work{r * (2 * hh * (pairs + branches + branches * branches) + 40), 4 * r * (hh * branches + hidden + 1)};
  }

  if (is("vulpes::backward::output_weights"))
    return each_head(s, [&](double out) { return weight_gradient(r, out, hh); });
  if (is("vulpes::backward::output_inputs"))
    return each_head(s, [&](double out) { return input_gradient(r, out, hh, true, false); });
  if (is("vulpes::backward::hidden_weights")) return weight_gradient(r, hidden, h2);
  if (is("vulpes::backward::hidden_inputs")) return input_gradient(r, hidden, h2, s.blocks == 0, false);
  if (is("vulpes::backward::residual")) return elements(r * h2, 2);
  if (is("vulpes::backward::block_weights")) return weight_gradient(r, h2, h2);
  if (is("vulpes::backward::block_inputs")) {
    Work w = input_gradient(r, h2, h2, false, true);
    return w +=
           {r * h2 / s.blocks, 4 * r * h2 / s.blocks};  // the first block's launch alone has a mask: a mean over blocks
  }
  if (is("vulpes::backward::trunk2_weights")) return weight_gradient(r, h2, h1);
  if (is("vulpes::backward::trunk2_inputs")) return input_gradient(r, h2, h1, true, false);
  if (is("vulpes::backward::trunk1_weights")) return weight_gradient(r, h1, s.state);

  // Launches that take rows through several layers, or all layers' weights: what the layers declare.
  const auto sum = [&](const std::vector<Launch>& layers) {
    Work all;
    for (const Launch& l : layers) all += work_of(l.label, z, l.rows).value();
    return all;
  };
  if (is("vulpes::forward")) return sum(forward_layers(s, rows));
  if (is("vulpes::forward::passes")) {
    Work both = sum(forward_layers(s, 2 * rows));  // online network: s and s'
    return both += sum(forward_layers(s, rows));   // target network: s'
  }
  if (is("vulpes::backward::inputs")) return sum(input_gradient_layers(s, rows));
  if (is("vulpes::backward::weights")) {
    Work all = sum(weight_gradient_layers(s, rows));
    const double launches = weight_gradient_launches(s);  // a mean over them
    return Work{all.flops / launches, all.bytes / launches};
  }

  if (is("vulpes::spectral::left")) {
    const SpectralSizes n = spectral_sizes(z);
    return Work{2 * n.elements + 2 * n.rows, 4 * (n.elements + n.rows + n.columns)};
  }
  if (is("vulpes::spectral::right")) {
    const SpectralSizes n = spectral_sizes(z);
    return Work{3 * n.elements + 2 * n.columns, 4 * (2 * n.elements + n.rows + 2 * n.columns)};
  }

  if (is("vulpes::optimise::gradient_squares")) return Work{2 * parameters, 4 * parameters};
  if (is("vulpes::optimise::update")) return Work{20 * parameters, 9 * 4 * parameters};
  if (is("vulpes::pruning::count") || is("vulpes::pruning::apply")) {
    const Network network(s);
    double weights = 0;
    for (const TensorSlice& t : network.layout.tensors()) weights += t.is_weight ? static_cast<double>(t.size()) : 0;
    // A magnitude's bits, shifted and compared. Applied: the mask, and zeros in four buffers, of all weights at most.
    if (is("vulpes::pruning::count")) return Work{0, 4 * weights, 4 * weights};
    return Work{0, (4 + 4 * 4 + 1.0 / 8) * weights, 3 * weights};
  }
  if (is("vulpes::metrics::finish_step")) return Work{r * row_figures, 4 * r * row_figures + 8.0 * int{step_outputs}};

  // Half of a node's 32 children are read on the way down, on average; sums have 8 bytes, leaves 4.
  const double search_bytes = tree_fan_out / 2 * (8.0 * (z.tree_levels - 1) + 4);
  if (is("vulpes::sample::draw")) {
    // Ten rounds of random words with ten operations each; a node's sums are added and compared.
    return Work{0, r * (search_bytes + 4 + 4 + 8), r * (100 + tree_fan_out * z.tree_levels)};
  }
  if (is("vulpes::sample::gather")) {
    Work w{r * (5.0 * z.n_step + 2 * inputs_flops + logarithm_flops),
           r * (8 + static_cast<double>(sizeof(ReplayRow)) * z.n_step + 2 * 4.0 * (z.feature_columns + s.state) +
                branches + 12)};
    if (z.goals) w += {r * (z.n_step + logarithm_flops + 8), 0};  // peak before the row, first reach, two gaps
    // Which write, whether relabelled; the row at the horizon's end and the donor.
    if (z.hindsight_share > 0) w += {0, r * (9 + z.hindsight_share * 2 * sizeof(ReplayRow))};
    if (z.auxiliary) w += {r * 2, r * (2.0 * sizeof(market::Bar) + 8)};
    return w;
  }
  if (is("vulpes::sample::priorities")) return Work{r * logarithm_flops, r * (4 + 4 + 8 + 4 + 4 + 2 * 4)};
  if (is("vulpes::segment_tree::update")) return Work{r, r * (4 + 4 + 2 * 4 + 2 * 4 + 2 * 8.0 * z.tree_levels)};
  if (is("vulpes::segment_tree::largest_leaf")) return Work{static_cast<double>(z.replay_rows), 4.0 * z.replay_rows};
  if (is("vulpes::replay::close_windows")) {
    return Work{r, r * (static_cast<double>(sizeof(ReplayRow)) + 2 * (2 * 4 + 2 * 8.0 * z.tree_levels))};
  }

  if (is("vulpes::collect::begin_episodes")) return Work{0, r * (sizeof(Environment) + sizeof(StartInterval))};
  if (is("vulpes::collect::write_states")) {
    return Work{r * (inputs_flops + gap_flops(z)),
                r * (sizeof(Environment) + sizeof(market::Bar) + 4.0 * (z.feature_columns + s.state))};
  }
  if (is("vulpes::collect::act")) {
    const Work bar = account_bar(z, sizeof(Environment), sizeof(ReplayRow));
    return Work{r * bar.flops, r * bar.bytes};
  }
  if (is("vulpes::backtest::begin")) {
    return Work{r * (inputs_flops + gap_flops(z)),
                r * (sizeof(BacktestAccount) + sizeof(market::Bar) + 4.0 * (z.feature_columns + s.state))};
  }
  if (is("vulpes::backtest::step")) {
    const Work bar = account_bar(z, sizeof(BacktestAccount), sizeof(BacktestRecord));
    return Work{r * bar.flops, r * bar.bytes};
  }

  // Of a measurement's (G + 1) M rows.
  if (is("vulpes::causal::interventions")) return Work{r * s.state, 4 * (2 * r + 1) * s.state};
  if (is("vulpes::causal::action_values")) {
    return Work{r * action_value_flops(s), 4 * r * (logits + total_actions)};
  }
  if (is("vulpes::causal::delta")) return Work{4.0 * r * total_actions, 4.0 * r * total_actions};
  return std::nullopt;
}

/// What one launch called `label` covers: the results of its rows, or the weights it goes over. One team is enough for
/// few of them.
inline double elements_of(std::string_view label, const WorkSizes& z, int rows) {
  const NetworkShape& s = z.shape;
  const struct {
    std::string_view label;
    int width;
  } of_rows[] = {{"vulpes::sample::draw", 1},
                 {"vulpes::sample::gather", s.state},
                 {"vulpes::sample::priorities", 1},
                 {"vulpes::segment_tree::update", 1},
                 {"vulpes::metrics::finish_step", row_outputs},
                 {"vulpes::forward::trunk1", s.hidden1},
                 {"vulpes::forward::trunk2", s.hidden2},
                 {"vulpes::forward::block", s.hidden2},
                 {"vulpes::forward::residual", s.hidden2},
                 {"vulpes::forward::hidden", s.hidden_width()},
                 {"vulpes::forward::outputs", s.logits()},
                 {"vulpes::diversity", s.hidden_width()},
                 {"vulpes::loss", s.logits()},
                 {"vulpes::backward::output_inputs", s.hidden_width()},
                 {"vulpes::backward::hidden_inputs", s.hidden2},
                 {"vulpes::backward::residual", s.hidden2},
                 {"vulpes::backward::block_inputs", s.hidden2},
                 {"vulpes::backward::trunk2_inputs", s.hidden1},
                 {"vulpes::backward::output_weights", s.logits()},
                 {"vulpes::backward::hidden_weights", s.hidden_width()},
                 {"vulpes::backward::block_weights", s.hidden2},
                 {"vulpes::backward::trunk2_weights", s.hidden2},
                 {"vulpes::backward::trunk1_weights", s.hidden1},
                 {"vulpes::causal::interventions", s.state},
                 {"vulpes::causal::action_values", total_actions},
                 {"vulpes::causal::delta", total_actions}};
  for (const auto& l : of_rows) {
    if (label == l.label) return static_cast<double>(rows) * l.width;
  }
  if (label.substr(0, 18) == "vulpes::spectral::") return work::spectral_sizes(z).elements;
  return static_cast<double>(Network(s).layout.parameter_count());
}

/// Launches of a training step over a batch of B rows, in the order of trainer/step.cpp.
inline std::vector<Launch> training_step_launches(const WorkSizes& z, int batch) {
  std::vector<Launch> all = {{"vulpes::sample::draw", batch}, {"vulpes::sample::gather", batch}};
  const auto add = [&](const std::vector<Launch>& more) { all.insert(all.end(), more.begin(), more.end()); };
  if (z.spectral_trunk || z.spectral_output)
    add({{"vulpes::spectral::left", batch}, {"vulpes::spectral::right", batch}});
  add({{"vulpes::forward::passes", batch}, {"vulpes::loss", batch}});
  if (z.diversity) add({{"vulpes::diversity", batch}});
  add({{"vulpes::backward::inputs", batch}});
  for (int i = 0; i < weight_gradient_launches(z.shape); ++i) add({{"vulpes::backward::weights", batch}});
  add({{"vulpes::optimise::gradient_squares", batch},
       {"vulpes::optimise::update", batch},
       {"vulpes::sample::priorities", batch},
       {"vulpes::segment_tree::update", batch},
       {"vulpes::metrics::finish_step", batch}});
  return all;
}

/// Launches of one collected bar of all accounts.
inline std::vector<Launch> collection_launches(const WorkSizes&, int accounts) {
  std::vector<Launch> all = {{"vulpes::forward", padded_rows(accounts)}};
  all.push_back({"vulpes::collect::act", accounts});
  all.push_back({"vulpes::replay::close_windows", accounts});
  return all;
}

/// Launches of one backtested bar of all accounts.
inline std::vector<Launch> backtest_launches(const WorkSizes&, int accounts) {
  std::vector<Launch> all = {{"vulpes::forward", padded_rows(accounts)}};
  all.push_back({"vulpes::backtest::step", accounts});
  return all;
}

/// Launches of a causal measurement of `groups` groups on `measured` rows.
inline std::vector<Launch> causal_launches(int groups, int measured) {
  const int rows = (groups + 1) * measured;
  return {{"vulpes::causal::interventions", rows},
          {"vulpes::forward", padded_rows(rows)},
          {"vulpes::causal::action_values", rows},
          {"vulpes::causal::delta", rows}};
}

/// Sum over launches. Throws std::bad_optional_access for a label without an entry.
inline Work total_work(const WorkSizes& z, const std::vector<Launch>& launches) {
  Work sum;
  for (const Launch& l : launches) sum += work_of(l.label, z, l.rows).value();
  return sum;
}

}  // namespace vulpes::kernels
