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
void epoch_figures(const Space& space, const EpochSources<Space>& sources, const SharedFigures& shared) {
  const int teams_of_chunks = static_cast<int>(sources.work.chunks.extent(0));
  const Chunk* chunks = sources.work.chunks.data();
  const float* weights = sources.parameters.data();
  double* squares = sources.squares.data();
  Kokkos::parallel_for(
      "vulpes::metrics::weight_squares", teams(space, teams_of_chunks, 256),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const Chunk c = chunks[team.league_rank()];
        const double sum = team_sum<double>(team, c.end - c.begin, [&](std::int64_t i) {
          return static_cast<double>(weights[c.begin + i]) * static_cast<double>(weights[c.begin + i]);
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] { squares[team.league_rank()] = sum; });
      });

  const TensorGroup* groups = sources.work.groups.data();
  const auto words = static_cast<std::int64_t>(sources.mask.extent(0));
  const std::uint32_t* mask = sources.mask.data();
  const float* sigma = sources.sigma.data();
  const StepState* state = sources.state.data();
  const PriorityCounts* counts = sources.counts.data();
  const std::uint32_t* largest = sources.largest.data();
  double* out = shared.data();
  Kokkos::parallel_for(
      "vulpes::metrics::figures", teams(space, sources.figures(), 128),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const int k = team.league_rank();
        const StepCounters now = state->now;
        double value = 0;
        if (k >= sigma_figure) {
          value = static_cast<double>(sigma[k - sigma_figure]);
        } else if (k >= weight_norm_figure) {
          value = Kokkos::sqrt(team_sum<double>(team, teams_of_chunks, [&](std::int64_t i) {
            return static_cast<int>(groups[i]) == k - weight_norm_figure ? squares[i] : 0.0;
          }));
        } else if (k == pruned_figure) {
          value = team_sum<double>(team, words,
                                   [&](std::int64_t i) { return static_cast<double>(Kokkos::popcount(mask[i])); });
        } else {
          value = k == adam_t_figure                 ? static_cast<double>(now.adam_t)
                  : k == rate_multiplier_figure      ? now.rate_multiplier
                  : k == auxiliary_multiplier_figure ? now.auxiliary_multiplier
                  : k == rollbacks_figure            ? static_cast<double>(now.rollbacks)
                  : k == stopped_figure              ? static_cast<double>(now.stopped)
                  : k == fault_figure                ? static_cast<double>(static_cast<std::uint32_t>(now.fault))
                  : k == fault_iteration_figure      ? static_cast<double>(now.fault_iteration)
                  : k == saturated_figure            ? static_cast<double>(counts->saturated)
                  : k == rejected_figure             ? static_cast<double>(counts->rejected)
                                                     : static_cast<double>(*largest);
        }
        Kokkos::single(Kokkos::PerTeam(team), [&] { out[k] = value; });
      });

  const std::int64_t first = sources.figures(), deltas = static_cast<std::int64_t>(sources.deltas.size());
  const double *delta = sources.deltas.data(), *records = sources.records.data();
  Kokkos::parallel_for(
      "vulpes::metrics::records", range(space, sources.size() - first),
      KOKKOS_LAMBDA(std::int64_t i) { out[first + i] = i < deltas ? delta[i] : records[i - deltas]; });
}

#define INSTANTIATE(S)                                                                                   \
  template void finish_step<S, float>(const S&, const LossBuffers<S, float>&, const OptimiserWork<S>&,   \
                                      const StepStateRef<S>&, const Matrix<double, S>&);                 \
  template void finish_step<S, double>(const S&, const LossBuffers<S, double>&, const OptimiserWork<S>&, \
                                       const StepStateRef<S>&, const Matrix<double, S>&);                \
  template void epoch_figures<S>(const S&, const EpochSources<S>&, const SharedFigures&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
