// A row is six dot products of length Hh and a 3 x 3 map of three vectors. On a host core a pack runs along the
// activations, which are neighbours in memory; on a device a row is a warp's, so that its reads coalesce. A NaN or Inf
// in a row's activations is in its gradient.
#include "vulpes/kernels/diversity.hpp"

#include "vulpes/core/pack.hpp"
#include "vulpes/core/pack_cuda.hpp"
#include "vulpes/kernels/formulas/diversity.hpp"

namespace vulpes::kernels {
namespace {

/// One row of the launch. `Lanes` shares out a row's columns: HostLanes, DeviceLanes.
template <class Real>
struct DiversityRow {
  int rows, width;  ///< B, Hh
  Real weight;
  Block<const Real> hidden;  ///< [B, heads * Hh]
  Block<Real> gradient;      ///< [B, heads * Hh]
  Real* row_loss;            ///< [B]

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void run(int i, const Lanes& lanes) const {
    using V = typename Lanes::Value;
    const Real* h = hidden.data + static_cast<std::int64_t>(i) * hidden.stride + width;
    Real* g = gradient.data + static_cast<std::int64_t>(i) * gradient.stride;

    Real product[branches][branches];
    for (int d = 0; d < branches; ++d) {
      for (int e = d; e < branches; ++e) {
        product[d][e] =
            lanes.sum(width, [&](int j) { return load<V>(h + d * width + j) * load<V>(h + e * width + j); });
      }
    }
    const DiversityTerms<Real> terms = diversity_terms(product);
    const Real scale = weight / static_cast<Real>(rows);
    lanes.each(width, [&](int j) {
      V of_branch[branches];
      for (int d = 0; d < branches; ++d) of_branch[d] = load<V>(h + d * width + j);
      store<V>(g + j, V(Real(0)));
      for (int d = 0; d < branches; ++d) {
        V sum = V(Real(0));
        for (int e = 0; e < branches; ++e) sum += V(scale * terms.share[d][e]) * of_branch[e];
        store<V>(g + (1 + d) * width + j, sum);
      }
    });
    lanes.once([&] { row_loss[i] = terms.loss; });
  }
};

/// One core, in packs of columns: a head's width is a multiple of width_multiple.
template <class Real>
struct HostLanes {
  using Value = std::conditional_t<kernels_use_packs, Pack<Real, width_multiple>, Real>;
  template <class F>
  KOKKOS_INLINE_FUNCTION Real sum(int width, const F& f) const {
    constexpr int parts = width_multiple / lanes<Value>;
    Value sums[parts];
    for (int p = 0; p < parts; ++p) sums[p] = Value(Real(0));
    for (int j = 0; j < width; j += width_multiple) {
      for (int p = 0; p < parts; ++p) sums[p] += f(j + p * lanes<Value>);
    }
    Real sum = Real(0);
    for (int k = 0; k < width_multiple; ++k) sum += lane(sums[k / lanes<Value>], k % lanes<Value>);
    return sum;
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void each(int width, const F& f) const {
    for (int j = 0; j < width; j += lanes<Value>) f(j);
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void once(const F& f) const {
    f();
  }
};

/// The vector lanes of one thread of a team, a column each in turn.
template <class Space, class Real>
struct DeviceLanes {
  using Value = Real;
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;
  const Member& team;
  template <class F>
  KOKKOS_INLINE_FUNCTION Real sum(int width, const F& f) const {
    Real sum = Real(0);
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, width), [&](int j, Real& part) { part += f(j); }, sum);
    return sum;
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void each(int width, const F& f) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, width), [&](int j) { f(j); });
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void once(const F& f) const {
    Kokkos::single(Kokkos::PerThread(team), f);
  }
};

}  // namespace

template <class Space, class Real>
void diversity(const Space& space, const NetworkShape& shape, Real weight, const Activations<Space, Real>& a,
               const LossBuffers<Space, Real>& loss, const BackwardBuffers<Space, Real>& backward) {
  const int rows = loss.rows;
  const DiversityRow<Real> row{rows,
                               shape.head_hidden,
                               weight,
                               block_of(a.hidden),
                               block_of(backward.hidden),
                               columns(loss.rows_out).at(diversity_out, 0)};
  if constexpr (is_host_space<Space>) {
    Kokkos::parallel_for("vulpes::diversity", range(space, rows),
                         [=](std::int64_t i) { row.run(static_cast<int>(i), HostLanes<Real>{}); });
  } else {
    constexpr int rows_a_team = 8, row_lanes = 32;
    using Policy = Kokkos::TeamPolicy<Space>;
    const auto policy =
        Kokkos::Experimental::require(Policy(space, (rows + rows_a_team - 1) / rows_a_team, rows_a_team, row_lanes),
                                      Kokkos::Experimental::WorkItemProperty::HintLightWeight);
    Kokkos::parallel_for(
        "vulpes::diversity", policy, KOKKOS_LAMBDA(const typename Policy::member_type& team) {
          const int i = team.league_rank() * rows_a_team + team.team_rank();
          if (i < rows) row.run(i, DeviceLanes<Space, Real>{team});
        });
  }
}

#define INSTANTIATE(S)                                                                                     \
  template void diversity<S, float>(const S&, const NetworkShape&, float, const Activations<S, float>&,    \
                                    const LossBuffers<S, float>&, const BackwardBuffers<S, float>&);       \
  template void diversity<S, double>(const S&, const NetworkShape&, double, const Activations<S, double>&, \
                                     const LossBuffers<S, double>&, const BackwardBuffers<S, double>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
