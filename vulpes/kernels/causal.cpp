// Contract: four launches, the network's as one; they write `buffers` alone. Rows do not interact before the last one,
// whose sums have a fixed order.
#include "vulpes/kernels/causal.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/sums.hpp"
#include "vulpes/core/tile.hpp"
#include "vulpes/core/transfer.hpp"
#include "vulpes/kernels/action_values.hpp"
#include "vulpes/kernels/formulas/causal_delta.hpp"

namespace vulpes::kernels {
namespace {

/// From a feature's own group (market/features.hpp) to the one measured here.
constexpr std::array<std::pair<const char*, const char*>, 9> built_in = {{{"return", "returns"},
                                                                          {"volatility", "volatility"},
                                                                          {"mean_distance", "means"},
                                                                          {"range", "range"},
                                                                          {"volume", "volume"},
                                                                          {"rsi", "oscillators"},
                                                                          {"macd", "oscillators"},
                                                                          {"bollinger", "oscillators"},
                                                                          {"calendar", "calendar"}}};

}  // namespace

FeatureGroups feature_groups(const market::FeatureSet& features, int state_width) {
  FeatureGroups groups;
  const auto find = [&](const std::string& name) {
    const auto at = std::find(groups.names.begin(), groups.names.end(), name);
    return static_cast<std::int32_t>(at - groups.names.begin());
  };
  const auto add = [&](const std::string& name) {
    const std::int32_t group = find(name);
    if (group == static_cast<std::int32_t>(groups.names.size())) groups.names.push_back(name);
    return group;
  };
  // An extra column is its own group, whatever it is called.
  const std::size_t extra = features.names.size() - static_cast<std::size_t>(features.extra_columns);
  for (std::size_t j = 0; j < features.names.size(); ++j) {
    if (j < extra) {
      const auto* known = std::find_if(built_in.begin(), built_in.end(),
                                       [&](const auto& pair) { return features.groups[j] == pair.first; });
      throw_if<RunError>(known == built_in.end(), "feature '" + features.names[j] + "' is of group '" +
                                                      features.groups[j] + "', which has no group of inputs");
      groups.of.push_back(add(known->second));
    } else {
      std::string name = features.names[j];
      while (name == "account" || find(name) < static_cast<std::int32_t>(groups.names.size())) name += "_column";
      groups.of.push_back(add(name));
    }
  }
  const std::int32_t account = add("account");
  groups.of.resize(static_cast<std::size_t>(state_width), account);
  return groups;
}

template <class Space>
CausalBuffers<Space>::CausalBuffers(const Space& space, const NetworkShape& shape, const FeatureGroups& g, int count,
                                    int kept)
    : groups(static_cast<int>(g.names.size())),
      rows(count),
      group_of(upload(space, "vulpes::causal::group_of", g.of)),
      activations(space, shape, (groups + 1) * rows, "vulpes::causal"),
      base(allocate_zeroed<Matrix<float, Space>>(space, "vulpes::causal::base", branches * shape.atoms,
                                                 activations.rows + column_padding)),
      q(allocate_zeroed<Matrix<float, Space>>(space, "vulpes::causal::q", total_actions,
                                              activations.rows + column_padding)),
      records(allocate_zeroed<Matrix<double, Space>>(space, "vulpes::causal::records", kept, groups)) {}

template <class Space>
void causal_delta(const Space& space, const Network& network, const float* parameters, const float* output_bias,
                  const Support<float>& support, RandomKey key, const std::uint64_t* iteration, std::int64_t every,
                  MatrixRef<const float, Space> states, const CausalBuffers<Space>& buffers) {
  using Policy = Kokkos::TeamPolicy<Space>;
  const Activations<Space, float>& a = buffers.activations;
  const int groups = buffers.groups, rows = buffers.rows, width = static_cast<int>(states.extent(1));
  const auto batch = static_cast<std::uint32_t>(states.extent(0));
  throw_if<RunError>(batch < 2 || rows > static_cast<int>(batch),
                     "causal.rows: " + std::to_string(rows) + " rows of a batch of " + std::to_string(batch) +
                         "; use at most the batch, and a batch of at least 2");

  const float* from = states.data();
  const std::int32_t* group_of = buffers.group_of.data();
  float* input = a.input.data();
  Kokkos::parallel_for(
      "vulpes::causal::interventions", teams(space, (groups + 1) * rows, 32),
      KOKKOS_LAMBDA(const typename Policy::member_type& team) {
        const int i = team.league_rank(), group = i / rows - 1, k = i % rows;  // group -1: no intervention
        // A stratified batch is sorted by age: its first rows would be the oldest ones.
        const auto row = static_cast<std::uint32_t>(static_cast<std::int64_t>(k) * batch / rows);
        const std::uint32_t donor = group < 0 ? row : donor_row(key, *iteration, group, k, rows, row, batch);
        const float *own = from + static_cast<std::int64_t>(row) * width,
                    *other = from + static_cast<std::int64_t>(donor) * width;
        float* to = input + static_cast<std::int64_t>(i) * width;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, width),
                             [&](int j) { to[j] = group_of[j] == group ? other[j] : own[j]; });
      });

  forward<Space, float>(space, network, parameters, a, a.rows);

  using T = Tile<Space, float>;
  const ActionValues<float, typename T::Value> values{
      network.shape, support, columns(a.logits), output_bias, columns(buffers.base), columns(buffers.q)};
  for_each_tile<float>(
      space, "vulpes::causal::action_values", a.rows, KOKKOS_LAMBDA(const T& tile) { values.compute(tile); });

  const Columns<const float> q = columns(buffers.q);
  const auto kept = static_cast<std::int64_t>(buffers.records.extent(0));
  double* records = buffers.records.data();
  Kokkos::parallel_for(
      "vulpes::causal::delta", teams(space, groups, 256), KOKKOS_LAMBDA(const typename Policy::member_type& team) {
        const int group = team.league_rank();
        const std::int64_t count = static_cast<std::int64_t>(total_actions) * rows, ahead = (group + 1) * rows;
        const auto value = [&](std::int64_t i) { return q.at(i / rows, i % rows); };
        const double size =
            team_sum<double>(team, count, [&](std::int64_t i) { return Kokkos::fabs(static_cast<double>(*value(i))); });
        const double change = team_sum<double>(team, count, [&](std::int64_t i) {
          const float* at = value(i);
          return Kokkos::fabs(static_cast<double>(at[0]) - static_cast<double>(at[ahead]));
        });
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          const auto record = static_cast<std::int64_t>(*iteration) / every % kept;
          records[record * groups + group] = relative_change(change, size);
        });
      });
}

#define INSTANTIATE(S)                                                                                       \
  template struct CausalBuffers<S>;                                                                          \
  template void causal_delta<S>(const S&, const Network&, const float*, const float*, const Support<float>&, \
                                RandomKey, const std::uint64_t*, std::int64_t, MatrixRef<const float, S>,    \
                                const CausalBuffers<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
