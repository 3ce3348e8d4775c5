#include "vulpes/trainer/step_buffers.hpp"

#include <limits>

namespace vulpes::trainer {
namespace {

std::uint64_t next_generation() {
  static std::uint64_t generation = 0;
  return ++generation;
}

}  // namespace

template <class Space>
StepBuffers<Space>::StepBuffers(const Space& space, const kernels::NetworkShape& shape, int batch_rows,
                                int record_count)
    : generation(next_generation()),
      batch(batch_rows),
      online(space, shape, 2 * batch_rows, "vulpes::step::online"),
      target_next(space, shape, batch_rows, "vulpes::step::target_next"),
      loss(space, shape, batch_rows, "vulpes::step::loss"),
      backward(space, shape, batch_rows, "vulpes::step::backward"),
      draws(space, batch_rows),
      actions(
          allocate_zeroed<Matrix<std::uint8_t, Space>>(space, "vulpes::step::actions", kernels::branches, batch_rows)),
      rewards(allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::rewards", batch_rows)),
      discounts(allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::discounts", batch_rows)),
      weights(allocate_zeroed<Vector<float, Space>>(space, "vulpes::step::weights", batch_rows)),
      records(
          allocate_zeroed<Matrix<double, Space>>(space, "vulpes::step::records", record_count, kernels::step_outputs)) {
  target_next.input = Kokkos::subview(online.input, std::pair<int, int>(batch_rows, 2 * batch_rows), Kokkos::ALL);
#if defined(VULPES_DEBUG_CHECKS)
  const float poison = std::numeric_limits<float>::quiet_NaN();
  for (const auto& m :
       {online.input,       online.trunk1,      online.trunk2,      online.hidden,      online.logits,
        target_next.trunk1, target_next.trunk2, target_next.hidden, target_next.logits, loss.logit_gradient,
        loss.next_base,     loss.next_q,        loss.target,        loss.next_prob,     loss.chosen,
        loss.branch_out,    loss.rows_out,      backward.hidden,    backward.trunk1,    backward.trunk2,
        backward.block}) {
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
