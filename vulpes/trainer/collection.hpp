// Collection: what it needs of a configuration, and one bar-step of all accounts.
#pragma once

#include "vulpes/io/config.hpp"
#include "vulpes/kernels/collect.hpp"
#include "vulpes/trainer/folds.hpp"
#include "vulpes/trainer/learner.hpp"

namespace vulpes::trainer {

/// Arguments of collection with the learner's online network on bars of `range`; `starts` as from start_intervals.
/// Support and exploration schedule are left to the caller, who knows them later. Holds pointers into `learner`.
template <class Space>
kernels::CollectArguments<Space> make_collect_arguments(const Space& space, const io::Config& config, RandomKey key,
                                                        const Learner<Space>& learner,
                                                        const kernels::MarketTable<Space>& table,
                                                        const std::vector<kernels::StartInterval>& starts, Range range);

/// One bar-step of all accounts: forward pass, actions and accounts, replay slot, leaves.
template <class Space>
void collect_bar(const Space& space, const kernels::CollectArguments<Space>& arguments, const Learner<Space>& learner,
                 const kernels::CollectBuffers<Space>& buffers, const kernels::ReplayRing<Space>& ring, int n_step);

}  // namespace vulpes::trainer
