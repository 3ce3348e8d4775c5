// Contract: after gradient_squares and optimise, parameters, target and moments are those of the next step. Sums are in
// double and in a fixed order; a NaN or Inf anywhere in the gradient makes the norm non-finite and the step a no-op.
#include "vulpes/kernels/optimise.hpp"

#include "vulpes/core/sums.hpp"
#include "vulpes/core/transfer.hpp"
#include "vulpes/kernels/formulas/adamw.hpp"
#include "vulpes/kernels/formulas/gradient_clip.hpp"
#include "vulpes/kernels/formulas/polyak.hpp"

namespace vulpes::kernels {
namespace {

constexpr int team_threads = 256;

}  // namespace

template <class Space>
OptimiserWork<Space>::OptimiserWork(const Space& space, const ParameterLayout& layout) {
  chunks = upload(space, "vulpes::optimise::chunks", make_chunks(layout, chunk_elements));
  std::vector<std::uint8_t> decaying;
  for (const TensorSlice& t : layout.tensors()) decaying.push_back(t.is_weight ? 1 : 0);
  decays = upload(space, "vulpes::optimise::decays", decaying);
  squares = allocate_zeroed<Vector<double, Space>>(space, "vulpes::optimise::squares", chunks.extent(0));
}

template <class Space, class Real>
void gradient_squares(const Space& space, const OptimiserWork<Space>& work,
                      const OptimiserBuffers<Space, Real>& buffers) {
  const Chunk* chunks = work.chunks.data();
  double* squares = work.squares.data();
  const Real* gradient = buffers.gradient.data();
  const int count = static_cast<int>(work.chunks.extent(0));
  Kokkos::parallel_for(
      "vulpes::optimise::gradient_squares", teams(space, count, team_threads),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const Chunk c = chunks[team.league_rank()];
        const double sum = team_sum<double>(team, c.end - c.begin, [&](std::int64_t i) {
          const double g = static_cast<double>(gradient[c.begin + i]);
          return g * g;
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] { squares[team.league_rank()] = sum; });
      });
}

template <class Space, class Real>
void optimise(const Space& space, const OptimiserWork<Space>& work, const OptimiserRules& rules,
              const OptimiserBuffers<Space, Real>& b, const StepStateRef<Space>& state) {
  const Chunk* chunks = work.chunks.data();
  const std::uint8_t* decays = work.decays.data();
  const double* squares = work.squares.data();
  const int count = static_cast<int>(work.chunks.extent(0));
  StepState* s = state.data();
  const Real* gradient = b.gradient.data();
  Real *parameters = b.parameters.data(), *target = b.target.data();
  Real *first = b.first_moment.data(), *second = b.second_moment.data();
  Kokkos::parallel_for(
      "vulpes::optimise::update", teams(space, count, team_threads),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const double norm = Kokkos::sqrt(team_sum<double>(team, count, [&](std::int64_t i) { return squares[i]; }));
        const bool skip = !Kokkos::isfinite(norm);
        const double clip = skip ? 0.0 : clip_factor(norm, rules.clip_norm);
        const int index = team.league_rank();
        if (index == 0) {
          Kokkos::single(Kokkos::PerTeam(team), [&] {
            s->gradient_norm = norm;
            s->clip = clip;
            s->skip = skip ? 1 : 0;
            s->next_iteration = s->iteration + 1;
          });
        }
        if (skip) return;
        const Chunk c = chunks[index];
        const AdamWStep<Real> step = AdamWStep<Real>::make(
            rules.beta1, rules.beta2, rules.epsilon, rules.rate(static_cast<std::int64_t>(s->iteration)),
            decays[c.tensor] ? rules.weight_decay : 0.0, static_cast<double>(s->adam_t + 1));
        const Real factor = static_cast<Real>(clip), tau = static_cast<Real>(rules.tau);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, c.begin, c.end), [&](std::uint32_t j) {
          Real w = parameters[j], m = first[j], v = second[j];
          adamw(step, gradient[j] * factor, w, m, v);
          parameters[j] = w;
          first[j] = m;
          second[j] = v;
          target[j] = polyak(target[j], w, tau);
        });
      });
}

#define INSTANTIATE(S)                                                                                              \
  template struct OptimiserWork<S>;                                                                                 \
  template void gradient_squares<S, float>(const S&, const OptimiserWork<S>&, const OptimiserBuffers<S, float>&);   \
  template void gradient_squares<S, double>(const S&, const OptimiserWork<S>&, const OptimiserBuffers<S, double>&); \
  template void optimise<S, float>(const S&, const OptimiserWork<S>&, const OptimiserRules&,                        \
                                   const OptimiserBuffers<S, float>&, const StepStateRef<S>&);                      \
  template void optimise<S, double>(const S&, const OptimiserWork<S>&, const OptimiserRules&,                       \
                                    const OptimiserBuffers<S, double>&, const StepStateRef<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
