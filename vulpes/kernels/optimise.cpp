// Contract: after gradient_squares and optimise, parameters, target and moments are those of the next step. Sums are in
// double and in a fixed order; a NaN or Inf anywhere in the gradient makes the norm non-finite and the step a no-op.
#include "vulpes/kernels/optimise.hpp"

#include "vulpes/core/sums.hpp"
#include "vulpes/core/transfer.hpp"
#include "vulpes/kernels/formulas/adamw.hpp"
#include "vulpes/kernels/formulas/polyak.hpp"
#include "vulpes/kernels/formulas/pruning.hpp"

namespace vulpes::kernels {
namespace {

constexpr int team_threads = 256;

/// The arrays of pass 2 as plain pointers.
template <class Real>
struct Arrays {
  Real *parameters, *target, *first, *second;
  std::uint32_t* mask;
  Real* singular;
};

template <class Buffers>
auto arrays_of(const Buffers& b) {
  using Real = typename decltype(b.parameters)::value_type;
  return Arrays<Real>{b.parameters.data(),    b.target.data(), b.first_moment.data(),
                      b.second_moment.data(), b.mask.data(),   b.singular.data()};
}

/// Elements [begin, end) of every array, mask words included, from one set to another.
template <class Member, class Real>
KOKKOS_INLINE_FUNCTION void copy_chunk(const Member& team, const Arrays<Real>& from, const Arrays<Real>& to,
                                       std::uint32_t begin, std::uint32_t end) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, begin, end), [&](std::uint32_t j) {
    to.parameters[j] = from.parameters[j];
    to.target[j] = from.target[j];
    to.first[j] = from.first[j];
    to.second[j] = from.second[j];
  });
  if (!from.mask) return;
  const std::uint32_t first_word = begin / mask_bits, last_word = (end + mask_bits - 1) / mask_bits;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, first_word, last_word),
                       [&](std::uint32_t w) { to.mask[w] = from.mask[w]; });
}

/// Piece `piece` of one half of the singular vectors.
template <class Member, class Real>
KOKKOS_INLINE_FUNCTION void copy_singular(const Member& team, const Real* from, Real* to, int piece, int size) {
  constexpr int elements = OptimiserWork<Kokkos::DefaultHostExecutionSpace>::chunk_elements;
  const int begin = piece * elements, end = begin + elements < size ? begin + elements : size;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, begin, end), [&](int j) { to[j] = from[j]; });
}

}  // namespace

TensorGroup group_of(const std::string& tensor) {
  const auto contains = [&](const char* part) { return tensor.find(part) != std::string::npos; };
  if (contains("trunk.")) return TensorGroup::trunk;
  if (contains("block.")) return TensorGroup::blocks;
  if (contains(".value")) return TensorGroup::value;
  if (contains(".exposure")) return TensorGroup::exposure;
  if (contains(".order")) return TensorGroup::order;
  if (contains(".urgency")) return TensorGroup::urgency;
  return TensorGroup::head_biases;
}

template <class Space>
OptimiserWork<Space>::OptimiserWork(const Space& space, const ParameterLayout& layout) {
  const std::vector<Chunk> pieces = make_chunks(layout, chunk_elements);
  chunks = upload(space, "vulpes::optimise::chunks", pieces);
  std::vector<std::uint8_t> decaying;
  for (const TensorSlice& t : layout.tensors()) decaying.push_back(t.is_weight ? 1 : 0);
  decays = upload(space, "vulpes::optimise::decays", decaying);
  std::vector<TensorGroup> group;
  for (const Chunk& c : pieces) group.push_back(group_of(layout[static_cast<int>(c.tensor)].name));
  groups = upload(space, "vulpes::optimise::groups", group);
  squares = allocate_zeroed<Vector<double, Space>>(space, "vulpes::optimise::squares", chunks.extent(0));
}

template <class Space, class Real>
void gradient_squares(const Space& space, const OptimiserWork<Space>& work,
                      const OptimiserBuffers<Space, Real>& buffers) {
  const Chunk* chunks = work.chunks.data();
  double* squares = work.squares.data();
  const Real* gradient = buffers.gradient.data();
  const std::uint32_t* mask = buffers.mask.data();
  const int count = static_cast<int>(work.chunks.extent(0));
  Kokkos::parallel_for(
      "vulpes::optimise::gradient_squares", teams(space, count, team_threads),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const Chunk c = chunks[team.league_rank()];
        double sum = 0;
        if (mask) {
          sum = team_sum<double>(team, c.end - c.begin, [&](std::int64_t i) {
            const double g = is_pruned(mask, c.begin + i) ? 0.0 : static_cast<double>(gradient[c.begin + i]);
            return g * g;
          });
        } else {
          sum = team_sum<double>(team, c.end - c.begin, [&](std::int64_t i) {
            const double g = static_cast<double>(gradient[c.begin + i]);
            return g * g;
          });
        }
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
  const Arrays<Real> live = arrays_of(b), saved = arrays_of(b.snapshot);
  const bool snapshots = saved.parameters != nullptr;
  // With snapshots, some teams more for the singular vectors.
  const int half = snapshots ? static_cast<int>(b.snapshot.singular.extent(0)) : 0;
  const int more = (half + OptimiserWork<Space>::chunk_elements - 1) / OptimiserWork<Space>::chunk_elements;
  Kokkos::parallel_for(
      "vulpes::optimise::update", teams(space, count + more, team_threads),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const double norm = Kokkos::sqrt(team_sum<double>(team, count, [&](std::int64_t i) { return squares[i]; }));
        const StepCounters now = s->now;
        const StepCounters next = judge(rules.guard, now, norm, rules.clip_norm);
        const int index = team.league_rank();
        if (index == 0) Kokkos::single(Kokkos::PerTeam(team), [&] { s->next = next; });

        const bool restores = snapshots && rolls_back(now, next), keeps = snapshots && takes_snapshot(now, next);
        if (index >= count) {
          Real* vectors = live.singular + (next.adam_t & 1) * half;
          if (restores) copy_singular(team, saved.singular, vectors, index - count, half);
          if (keeps) copy_singular(team, vectors, saved.singular, index - count, half);
          return;
        }
        const Chunk c = chunks[index];
        if (restores) copy_chunk(team, saved, live, c.begin, c.end);
        if (next.skip) return;
        const AdamWStep<Real> step =
            AdamWStep<Real>::make(rules.beta1, rules.beta2, rules.epsilon,
                                  rules.rate(static_cast<std::int64_t>(now.iteration)) * now.rate_multiplier,
                                  decays[c.tensor] ? rules.weight_decay : 0.0, static_cast<double>(next.adam_t));
        const Real factor = static_cast<Real>(next.clip), tau = static_cast<Real>(rules.tau);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, c.begin, c.end), [&](std::uint32_t j) {
          Real w = live.parameters[j], m = live.first[j], v = live.second[j];
          adamw(step, gradient[j] * factor, w, m, v);
          live.parameters[j] = w;
          live.first[j] = m;
          live.second[j] = v;
          live.target[j] = polyak(live.target[j], w, tau);
        });
        if (live.mask) {
          team.team_barrier();
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, c.begin, c.end), [&](std::uint32_t j) {
            if (is_pruned(live.mask, j)) live.parameters[j] = live.target[j] = live.first[j] = live.second[j] = Real(0);
          });
        }
        if (keeps) {
          team.team_barrier();
          copy_chunk(team, live, saved, c.begin, c.end);
        }
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
