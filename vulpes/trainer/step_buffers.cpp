#include "vulpes/trainer/step_buffers.hpp"

#include <algorithm>
#include <limits>

namespace vulpes::trainer {
namespace {

std::uint64_t next_generation() {
  static std::uint64_t generation = 0;
  return ++generation;
}

}  // namespace

StepParts step_parts(const io::Config& c, const kernels::FeatureGroups& groups) {
  StepParts p;
  p.batch = static_cast<int>(c.train.batch);
  p.auxiliary = c.auxiliary.weight > 0;
  p.hindsight = c.hindsight.share > 0;
  if (c.causal.every > 0) {
    p.groups = groups;
    p.causal_rows = static_cast<int>(std::min(c.causal.rows, c.train.batch));
    p.causal_records = static_cast<int>(c.train.epoch_steps / c.causal.every) + 1;
  }
  return p;
}

template <class Space>
StepBuffers<Space>::StepBuffers(const Space& space, const kernels::NetworkShape& shape, const StepParts& parts,
                                int record_count)
    : generation(next_generation()),
      batch(parts.batch),
      online(space, shape, 2 * parts.batch, "vulpes::step::online"),
      target_next(space, shape, parts.batch, "vulpes::step::target_next"),
      loss(space, shape, parts.batch, "vulpes::step::loss", parts.trace),
      backward(space, shape, parts.batch, "vulpes::step::backward"),
      draws(space, parts.batch),
      actions(
          allocate_zeroed<Matrix<std::uint8_t, Space>>(space, "vulpes::step::actions", kernels::branches, parts.batch)),
      rewards(allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::rewards", parts.batch)),
      discounts(allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::discounts", parts.batch)),
      weights(allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::weights", parts.batch)),
      records(
          allocate_zeroed<Matrix<double, Space>>(space, "vulpes::step::records", record_count, kernels::step_outputs)) {
  // Views of no elements have an address too, and kernels take an address for memory: what is off is not allocated.
  if (parts.auxiliary) {
    next_returns = allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::next_returns", parts.batch);
    exposures = allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::exposures", parts.batch);
  }
  if (parts.hindsight || parts.trace)
    relabelled = allocate_zeroed<Vector<std::uint8_t, Space>>(space, "vulpes::step::relabelled", parts.batch);
  if (parts.trace) {
    goals = allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::goals", parts.batch);
    donors = allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::step::donors", parts.batch);
  }
  if (parts.causal_records > 0) {
    causal = kernels::CausalBuffers<Space>(space, shape, parts.groups, parts.causal_rows, parts.causal_records);
  }
  target_next.input = Kokkos::subview(online.input, std::pair<int, int>(parts.batch, 2 * parts.batch), Kokkos::ALL);
#if defined(VULPES_DEBUG_CHECKS)
  const float poison = std::numeric_limits<float>::quiet_NaN();
  for (const auto& m :
       {online.input,       online.trunk1,      online.trunk2,       online.hidden,        online.logits,
        target_next.trunk1, target_next.trunk2, target_next.hidden,  target_next.logits,   loss.logit_gradient,
        loss.base,          loss.next_base,     loss.probability,    loss.next_q,          loss.target,
        loss.next_prob,     loss.chosen,        loss.branch_out,     loss.rows_out,        loss.q,
        loss.q_slope,       loss.cql_slope,     loss.exposure_label, loss.exposure_policy, backward.hidden,
        backward.trunk1,    backward.trunk2,    backward.block}) {
    Kokkos::deep_copy(space, m, poison);
  }
  for (const auto& v : {rewards, discounts, weights}) Kokkos::deep_copy(space, v, poison);
#endif
  space.fence("vulpes::step::buffers");
}

#define INSTANTIATE(S) template struct StepBuffers<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::trainer
