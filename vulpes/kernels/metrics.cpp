// Contract: one team a column. Teams read `state.next` alone, which no team of this launch writes.
#include "vulpes/kernels/metrics.hpp"

#include "vulpes/core/sums.hpp"

namespace vulpes::kernels {

template <class Space, class Real>
void finish_step(const Space& space, const LossBuffers<Space, Real>& loss, const OptimiserWork<Space>& work,
                 const StepStateRef<Space>& state, const Matrix<double, Space>& ring) {
  const Columns<Real> rows = columns(loss.rows_out);
  const int batch = loss.rows;
  const std::uint64_t records = ring.extent(0);
  const double* squares = work.squares.data();
  const TensorGroup* groups = work.groups.data();
  const auto chunks = static_cast<std::int64_t>(work.chunks.extent(0));
  StepState* s = state.data();
  double* out = ring.data();
  Kokkos::parallel_for(
      "vulpes::metrics::finish_step", teams(space, step_outputs, 128),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const int k = team.league_rank();
        const StepCounters next = s->next;
        double value = 0;
        if (k <= q_square_out) {
          const Real* column = rows.at(k < q_square_out ? k : static_cast<int>(q_out), 0);
          const bool square = k == q_square_out;
          value = team_sum<double>(team, batch,
                                   [&](std::int64_t r) {
                                     const double x = static_cast<double>(column[r]);
                                     return square ? x * x : x;
                                   }) /
                  batch;
        } else if (k >= group_norm_out) {
          value = Kokkos::sqrt(team_sum<double>(team, chunks, [&](std::int64_t i) {
            return static_cast<int>(groups[i]) == k - group_norm_out ? squares[i] : 0.0;
          }));
        } else {
          value = k == gradient_norm_out ? next.gradient_norm
                  : k == clip_out        ? next.clip
                  : k == skip_out        ? static_cast<double>(next.skip)
                                         : next.rate_multiplier;
        }
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          if (!next.idle) out[((next.iteration - 1) % records) * step_outputs + k] = value;
          if (k == 0) s->now = next;
        });
      });
}

template <class Space>
void weight_squares(const Space& space, const OptimiserWork<Space>& work, const Vector<float, Space>& parameters,
                    const Vector<double, Space>& squares) {
  const Chunk* chunks = work.chunks.data();
  const float* w = parameters.data();
  double* out = squares.data();
  Kokkos::parallel_for(
      "vulpes::metrics::weight_squares", teams(space, static_cast<int>(work.chunks.extent(0)), 256),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const Chunk c = chunks[team.league_rank()];
        const double sum = team_sum<double>(team, c.end - c.begin, [&](std::int64_t i) {
          return static_cast<double>(w[c.begin + i]) * static_cast<double>(w[c.begin + i]);
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] { out[team.league_rank()] = sum; });
      });
}

#define INSTANTIATE(S)                                                                                   \
  template void finish_step<S, float>(const S&, const LossBuffers<S, float>&, const OptimiserWork<S>&,   \
                                      const StepStateRef<S>&, const Matrix<double, S>&);                 \
  template void finish_step<S, double>(const S&, const LossBuffers<S, double>&, const OptimiserWork<S>&, \
                                       const StepStateRef<S>&, const Matrix<double, S>&);                \
  template void weight_squares<S>(const S&, const OptimiserWork<S>&, const Vector<float, S>&, const Vector<double, S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
