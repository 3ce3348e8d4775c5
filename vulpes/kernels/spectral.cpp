// Contract: two launches; launch 1 reads every matrix once, launch 2 reads and writes it once. u, v, sigma are those of
// the matrices before this projection. A matrix whose W' u is zero or NaN keeps its u and v.
#include "vulpes/kernels/spectral.hpp"

#include <cmath>
#include <limits>

#include "vulpes/core/sums.hpp"
#include "vulpes/core/transfer.hpp"
#include "vulpes/kernels/formulas/spectral_norm.hpp"

namespace vulpes::kernels {
namespace {

constexpr int columns_a_strip = 64;
constexpr int row_parts = 16;  // of a device's team in launch 1: a thread sums every 16th row of 4 columns
constexpr int rows_a_strip = 16;
constexpr int team_threads = 256;

/// Launch 1: t = W' u / ||u|| for a strip of columns.
template <class Space>
void left_product(const Space& space, const SpectralNorm<Space>& n, const float* parameters, const StepCounters* now) {
  const SpectralStrip* strips = n.column_strips.data();
  const float* vectors = n.vectors.data();
  float* t = n.t.data();
  const int half = n.half;
  auto policy = teams(space, static_cast<int>(n.column_strips.extent(0)), team_threads);
  if (!is_host_space<Space>) {
    policy.set_scratch_size(0, Kokkos::PerTeam(row_parts * columns_a_strip * static_cast<int>(sizeof(float))));
  }
  Kokkos::parallel_for(
      "vulpes::spectral::left", policy, KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        const SpectralStrip s = strips[team.league_rank()];
        const float* us = vectors + (now->adam_t & 1) * half + s.u;
        const float square = team_sum<float>(team, s.rows, [&](std::int64_t i) { return us[i] * us[i]; });
        const float scale = square > 0.0f ? 1.0f / Kokkos::sqrt(square) : 0.0f;
        const float* w = parameters + s.offset;
        float* const product = t + s.v;
        if constexpr (is_host_space<Space>) {
          float sum[columns_a_strip] = {};
          const int width = static_cast<int>(s.end - s.begin);
          for (std::uint32_t i = 0; i < s.rows; ++i) {
            const float* row = w + static_cast<std::int64_t>(i) * s.columns + s.begin;
            for (int j = 0; j < width; ++j) sum[j] += row[j] * us[i];
          }
          for (int j = 0; j < width; ++j) product[s.begin + j] = sum[j] * scale;
        } else {
          constexpr int columns_a_thread = columns_a_strip * row_parts / team_threads;
          float* const partial = static_cast<float*>(team.team_scratch(0).get_shmem_aligned(0, sizeof(float)));
          const std::uint32_t part = team.team_rank() % row_parts;
          const std::uint32_t first = s.begin + team.team_rank() / row_parts * columns_a_thread;
          // (Lanes of a warp are 16 rows of 2 x 4 columns: 32 bytes of each.)
          float sum[columns_a_thread] = {};
          for (std::uint32_t i = part; i < s.rows; i += row_parts) {
            const float* row = w + static_cast<std::int64_t>(i) * s.columns;
            for (int j = 0; j < columns_a_thread; ++j) {
              if (first + j < s.end) sum[j] += row[first + j] * us[i];
            }
          }
          for (int j = 0; j < columns_a_thread; ++j) {
            partial[part * columns_a_strip + (first - s.begin) + j] = sum[j];
          }
          team.team_barrier();
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, s.begin, s.end), [&](std::uint32_t j) {
            float total = 0.0f;
            for (int k = 0; k < row_parts; ++k) total += partial[k * columns_a_strip + (j - s.begin)];
            product[j] = total * scale;
          });
        }
      });
}

/// Launch 2: sigma = ||t||, v = t / sigma, a strip of u = W v, and the strip of W scaled.
template <class Space>
void right_product(const Space& space, const SpectralNorm<Space>& n, float* parameters, const StepCounters* now,
                   bool project) {
  const SpectralStrip* strips = n.row_strips.data();
  float *vectors = n.vectors.data(), *sigmas = n.sigma.data();
  const float* t = n.t.data();
  const int half = n.half;
  Kokkos::parallel_for(
      "vulpes::spectral::right", teams(space, static_cast<int>(n.row_strips.extent(0)), team_threads),
      KOKKOS_LAMBDA(const typename Kokkos::TeamPolicy<Space>::member_type& team) {
        if (now->stopped) return;
        const SpectralStrip s = strips[team.league_rank()];
        const float* ts = t + s.v;
        const float sigma =
            Kokkos::sqrt(team_sum<float>(team, s.columns, [&](std::int64_t j) { return ts[j] * ts[j]; }));
        const bool usable = sigma > 0.0f;  // false for a zero matrix and for NaN: its vectors stay
        const float inverse = usable ? 1.0f / sigma : 0.0f;
        const float scale = project ? spectral_scale(sigma, s.bound) : 1.0f;
        const float* before = vectors + (now->adam_t & 1) * half;
        float* after = vectors + (~now->adam_t & 1) * half;
        if (s.begin == 0) {
          Kokkos::single(Kokkos::PerTeam(team), [&] { sigmas[s.matrix] = sigma; });
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, s.columns),
                               [&](std::uint32_t j) { after[s.v + j] = usable ? ts[j] * inverse : before[s.v + j]; });
        }
        for (std::uint32_t i = s.begin; i < s.end; ++i) {
          float* row = parameters + s.offset + static_cast<std::int64_t>(i) * s.columns;
          const float dot =
              usable ? team_sum<float>(team, s.columns, [&](std::int64_t j) { return row[j] * ts[j]; }) : 0.0f;
          Kokkos::single(Kokkos::PerTeam(team), [&] { after[s.u + i] = usable ? dot * inverse : before[s.u + i]; });
          if (scale < 1.0f) {
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, s.columns), [&](std::uint32_t j) { row[j] *= scale; });
          }
        }
      });
}

}  // namespace

template <class Space>
SpectralNorm<Space>::SpectralNorm(const Space& space, const Network& network, double trunk, double output) {
  std::vector<SpectralStrip> by_column, by_row;
  std::uint32_t left = 0, right = 0;
  for (const TensorSlice& w : network.layout.tensors()) {
    if (!w.is_weight) continue;
    const double bound = w.name.rfind("output.", 0) == 0 ? output : trunk;
    if (bound <= 0) continue;
    SpectralStrip strip{static_cast<std::uint32_t>(w.offset),
                        static_cast<std::uint32_t>(w.rows),
                        static_cast<std::uint32_t>(w.columns),
                        0,
                        0,
                        left,
                        right,
                        static_cast<std::uint32_t>(names.size()),
                        static_cast<float>(bound)};
    for (int begin = 0; begin < w.columns; begin += columns_a_strip) {
      strip.begin = begin;
      strip.end = std::min(w.columns, begin + columns_a_strip);
      by_column.push_back(strip);
    }
    for (int begin = 0; begin < w.rows; begin += rows_a_strip) {
      strip.begin = begin;
      strip.end = std::min(w.rows, begin + rows_a_strip);
      by_row.push_back(strip);
    }
    left += w.rows;
    right += w.columns;
    names.push_back(w.name);
  }
  for (auto* strips : {&by_column, &by_row}) {
    for (SpectralStrip& s : *strips) s.v += left;  // v is behind u of all matrices
  }
  column_strips = upload(space, "vulpes::spectral::column_strips", by_column);
  row_strips = upload(space, "vulpes::spectral::row_strips", by_row);
  half = static_cast<int>(left + right);
  vectors = allocate_zeroed<Vector<float, Space>>(space, "vulpes::spectral::vectors", 2 * half);
  t = allocate_zeroed<Vector<float, Space>>(space, "vulpes::spectral::t", half);
  sigma = allocate_zeroed<Vector<float, Space>>(space, "vulpes::spectral::sigma", names.size());
}

template <class Space>
void SpectralNorm<Space>::start(const Space& space, const Vector<float, Space>& parameters) {
  if (!enabled()) return;
  const auto w = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameters);
  const auto strips = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), row_strips);
  const auto start = Kokkos::create_mirror_view(vectors);
  for (std::size_t k = 0; k < strips.extent(0); ++k) {
    const SpectralStrip s = strips(k);
    if (s.begin != 0) continue;
    double largest = -1;
    const float* best = nullptr;
    for (std::uint32_t i = 0; i < s.rows; ++i) {
      const float* row = w.data() + s.offset + static_cast<std::size_t>(i) * s.columns;
      double square = 0;
      for (std::uint32_t j = 0; j < s.columns; ++j) square += static_cast<double>(row[j]) * row[j];
      if (square > largest) largest = square, best = row;
    }
    for (std::uint32_t i = 0; i < s.rows; ++i) {
      const float* row = w.data() + s.offset + static_cast<std::size_t>(i) * s.columns;
      double dot = 0;
      for (std::uint32_t j = 0; j < s.columns; ++j) dot += static_cast<double>(row[j]) * best[j];
      start(s.u + i) = largest > 0 ? static_cast<float>(dot / largest) : 1.0f;
    }
  }
  Kokkos::deep_copy(space, vectors, start);
  const StepStateRef<Space> even = allocate_zeroed<StepStateRef<Space>>(space, "vulpes::spectral::even");
  const auto first = Kokkos::subview(vectors, std::pair<int, int>(0, half));
  const auto second = Kokkos::subview(vectors, std::pair<int, int>(half, 2 * half));
  constexpr int iterations = 10;
  for (int i = 0; i < iterations; ++i) {
    left_product(space, *this, parameters.data(), &even.data()->now);
    right_product(space, *this, parameters.data(), &even.data()->now, false);
    Kokkos::deep_copy(space, first, second);
  }
  space.fence("vulpes::spectral::start");
}

template <class Space>
void spectral_norm(const Space& space, const SpectralNorm<Space>& norm, const Vector<float, Space>& parameters,
                   const StepStateRef<Space>& state) {
  if (!norm.enabled()) return;
  left_product(space, norm, parameters.data(), &state.data()->now);
  right_product(space, norm, parameters.data(), &state.data()->now, true);
}

#define INSTANTIATE(S)             \
  template struct SpectralNorm<S>; \
  template void spectral_norm<S>(const S&, const SpectralNorm<S>&, const Vector<float, S>&, const StepStateRef<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
