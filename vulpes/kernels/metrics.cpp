// Contract: one team a column. Counters are read as `next_iteration - 1`, which no team of this launch writes.
#include "vulpes/kernels/metrics.hpp"

#include "vulpes/core/sums.hpp"

namespace vulpes::kernels {

template <class Space, class Real>
void finish_step(const Space& space, const LossBuffers<Space, Real>& loss, const StepStateRef<Space>& state,
                 const Matrix<double, Space>& ring) {
  const Columns<Real> rows = columns(loss.rows_out);
  const int batch = loss.rows;
  const std::uint64_t records = ring.extent(0);
  StepState* s = state.data();
  double* out = ring.data();
  Kokkos::parallel_for(
      "vulpes::metrics::finish_step", teams(space, step_outputs, 128),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const int k = team.league_rank();
        const std::uint64_t iteration = s->next_iteration - 1;
        double value = 0;
        if (k < row_outputs) {
          const Real* column = rows.at(k, 0);
          value = team_sum<double>(team, batch, [&](std::int64_t r) { return static_cast<double>(column[r]); }) / batch;
        } else {
          value = k == gradient_norm_out ? s->gradient_norm : (k == clip_out ? s->clip : static_cast<double>(s->skip));
        }
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          out[(iteration % records) * step_outputs + k] = value;
          if (k == 0) {
            s->iteration = iteration + 1;
            if (s->skip)
              ++s->skipped;
            else
              ++s->adam_t;
          }
        });
      });
}

#define INSTANTIATE(S)                                                                                  \
  template void finish_step<S, float>(const S&, const LossBuffers<S, float>&, const StepStateRef<S>&,   \
                                      const Matrix<double, S>&);                                        \
  template void finish_step<S, double>(const S&, const LossBuffers<S, double>&, const StepStateRef<S>&, \
                                       const Matrix<double, S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
