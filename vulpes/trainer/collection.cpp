#include "vulpes/trainer/collection.hpp"

#include "vulpes/core/transfer.hpp"

namespace vulpes::trainer {

template <class Space>
kernels::CollectArguments<Space> make_collect_arguments(const Space& space, const io::Config& config, RandomKey key,
                                                        const Learner<Space>& learner,
                                                        const kernels::MarketTable<Space>& table,
                                                        const std::vector<kernels::StartInterval>& starts,
                                                        Range range) {
  kernels::CollectArguments<Space> a;
  a.shape = learner.network.shape;
  a.key = key;
  a.rules = market::make_account_rules(config.account);
  a.goal = kernels::make_goal_rules(config);
  a.window = static_cast<std::uint32_t>(config.collect.window);
  a.exploration = config.collect.explore == "softmax" ? kernels::Exploration::softmax : kernels::Exploration::epsilon;
  a.temperature = static_cast<float>(config.collect.temperature);
  a.bias = learner.output_bias(learner.buffers.parameters);
  a.iteration = &learner.state.data()->now.iteration;
  a.table = table;
  a.starts = upload(space, "vulpes::collect::starts", starts);
  a.start_count = starts.back().before + starts.back().count;
  a.range_end = static_cast<std::uint32_t>(range.end);
  return a;
}

template <class Space>
void collect_bar(const Space& space, const kernels::CollectArguments<Space>& arguments, const Learner<Space>& learner,
                 const kernels::CollectBuffers<Space>& buffers, const kernels::ReplayRing<Space>& ring, int n_step) {
  kernels::forward<Space, float>(space, learner.network, learner.buffers.parameters.data(), buffers.activations,
                                 buffers.activations.rows);
  kernels::act(space, arguments, buffers, ring);
  kernels::close_windows(space, ring, n_step);
}

#define INSTANTIATE(S)                                                                                                \
  template kernels::CollectArguments<S> make_collect_arguments<S>(const S&, const io::Config&, RandomKey,             \
                                                                  const Learner<S>&, const kernels::MarketTable<S>&,  \
                                                                  const std::vector<kernels::StartInterval>&, Range); \
  template void collect_bar<S>(const S&, const kernels::CollectArguments<S>&, const Learner<S>&,                      \
                               const kernels::CollectBuffers<S>&, const kernels::ReplayRing<S>&, int);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
