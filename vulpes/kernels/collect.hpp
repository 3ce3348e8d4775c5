// One bar-step of all training accounts: act, trade, store the row, begin the next episode.
#pragma once

#include "vulpes/core/random.hpp"
#include "vulpes/core/schedule.hpp"
#include "vulpes/kernels/action_values.hpp"
#include "vulpes/kernels/formulas/goal.hpp"
#include "vulpes/kernels/market_table.hpp"
#include "vulpes/kernels/replay_rows.hpp"

namespace vulpes::kernels {

/// A training account and where it is; part of a checkpoint.
struct Environment {
  market::Account account;
  std::uint32_t bar;       ///< of the next decision
  std::uint32_t end;       ///< decisions are made at bars before this one
  std::uint32_t offset;    ///< decisions made in this episode
  std::uint32_t episodes;  ///< begun so far
  float goal;              ///< log growth wished for over this episode; 0 with goals off
  std::uint32_t reserved;
};

enum class Exploration : int { epsilon, softmax };

template <class Space>
struct CollectArguments {
  NetworkShape shape;
  Support<float> support;
  RandomKey key;
  market::AccountRules rules;
  GoalRules goal;
  std::uint32_t window = 0;  ///< decisions of an episode
  Exploration exploration = Exploration::epsilon;
  Schedule epsilon;
  float temperature = 1;
  const float* bias = nullptr;               ///< output bias of the acting network
  const std::uint64_t* iteration = nullptr;  ///< of training: exploration schedules
  MarketTable<Space> table;
  Vector<StartInterval, Space> starts;
  std::uint32_t start_count = 0;  ///< all intervals together
  std::uint32_t range_end = 0;    ///< no decision may use a bar at or after this one
};

/// Buffers of collection: the acting network's pass and action values over padded accounts.
template <class Space>
struct CollectBuffers {
  Activations<Space, float> activations;
  Matrix<float, Space> base, q;
  Vector<Environment, Space> environments;
  CollectBuffers() = default;
  CollectBuffers(const Space& space, const NetworkShape& shape, int envs);
};

/// Starts every account's first episode (shortened at random, so that they do not end together) and writes the first
/// states into activations.input.
template <class Space>
void begin_episodes(const Space& space, const CollectArguments<Space>& arguments, const CollectBuffers<Space>& buffers);

/// Writes the accounts' present states into activations.input (after a checkpoint was loaded).
template <class Space>
void write_states(const Space& space, const CollectArguments<Space>& arguments, const CollectBuffers<Space>& buffers);

/// After a forward pass over activations.input: chooses actions, advances accounts by one bar, writes slot
/// `written % slots` of the ring, and the next states into activations.input. The ring's cursor advances in
/// close_windows.
template <class Space>
void act(const Space& space, const CollectArguments<Space>& arguments, const CollectBuffers<Space>& buffers,
         const ReplayRing<Space>& ring);

}  // namespace vulpes::kernels
