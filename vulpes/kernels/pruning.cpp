// Contract: the mask depends on the weights alone. Counts are integers, so the order of atomic additions does not
// matter.
#include "vulpes/kernels/pruning.hpp"

#include "vulpes/core/transfer.hpp"

namespace vulpes::kernels {
namespace {

constexpr int team_threads = 256;

/// The magnitude's 31 bits (a float without its sign orders like an integer) in three digits, highest first.
constexpr int digits = 3, bins = 2048;
KOKKOS_INLINE_FUNCTION constexpr int shift_of(int digit) { return digit == 0 ? 20 : (digit == 1 ? 10 : 0); }
KOKKOS_INLINE_FUNCTION constexpr std::uint32_t digit_mask(int digit) { return digit == 0 ? 2047u : 1023u; }

KOKKOS_INLINE_FUNCTION std::uint32_t magnitude_bits(float w) {
  return Kokkos::bit_cast<std::uint32_t>(w) & 0x7fffffffu;
}

/// Looks for the element of rank `rank` (from 1) among the magnitudes of one matrix.
struct Selection {
  const std::uint32_t* histograms;  ///< of the matrix; digits are `stride` apart
  std::int64_t stride;
  std::uint32_t rank;

  /// The highest `known` digits of the wanted magnitude, in place; `rank` becomes the rank among those that share them.
  KOKKOS_INLINE_FUNCTION std::uint32_t prefix(int known) {
    std::uint32_t bits = 0;
    for (int d = 0; d < known; ++d) {
      const std::uint32_t* counts = histograms + d * stride;
      std::uint32_t bin = 0;
      while (bin < digit_mask(d) && counts[bin] < rank) rank -= counts[bin++];
      bits |= bin << shift_of(d);
    }
    return bits;
  }
};

struct PruneView {
  const Chunk* chunks;
  const std::uint32_t* elements;
  std::uint32_t* histograms;
  std::int64_t stride;
  const StepState* state;
  PruningRules rules;

  KOKKOS_INLINE_FUNCTION std::uint32_t pruned_of(std::uint32_t matrix) const {
    const double sparsity = cubic_sparsity(rules, static_cast<std::int64_t>(state->now.iteration));
    return static_cast<std::uint32_t>(sparsity * elements[matrix]);
  }
  KOKKOS_INLINE_FUNCTION Selection select(std::uint32_t matrix, std::uint32_t rank) const {
    return {histograms + static_cast<std::int64_t>(matrix) * bins, stride, rank};
  }
};

}  // namespace

template <class Space>
Pruning<Space>::Pruning(const Space& space, const ParameterLayout& layout) {
  std::vector<Chunk> pieces;
  std::vector<std::uint32_t> sizes, index(layout.tensors().size());
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    index[t] = static_cast<std::uint32_t>(sizes.size());
    if (layout.tensors()[t].is_weight) sizes.push_back(static_cast<std::uint32_t>(layout.tensors()[t].size()));
  }
  for (Chunk c : make_chunks(layout, OptimiserWork<Space>::chunk_elements)) {
    if (!layout[static_cast<int>(c.tensor)].is_weight) continue;
    c.tensor = index[c.tensor];
    pieces.push_back(c);
  }
  matrices = static_cast<int>(sizes.size());
  chunks = upload(space, "vulpes::pruning::chunks", pieces);
  elements = upload(space, "vulpes::pruning::elements", sizes);
  histograms = allocate_zeroed<Vector<std::uint32_t, Space>>(space, "vulpes::pruning::histograms",
                                                             static_cast<std::size_t>(digits) * matrices * bins);
}

template <class Space>
void prune(const Space& space, const Pruning<Space>& pruning, const PruningRules& rules,
           const OptimiserBuffers<Space, float>& b, const StepStateRef<Space>& state) {
  const PruneView view{pruning.chunks.data(),
                       pruning.elements.data(),
                       pruning.histograms.data(),
                       static_cast<std::int64_t>(pruning.matrices) * bins,
                       state.data(),
                       rules};
  float *parameters = b.parameters.data(), *target = b.target.data();
  float *first = b.first_moment.data(), *second = b.second_moment.data();
  std::uint32_t* mask = b.mask.data();
  const int count = static_cast<int>(pruning.chunks.extent(0));
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;

  Kokkos::deep_copy(space, pruning.histograms, 0u);
  for (int digit = 0; digit < digits; ++digit) {
    Kokkos::parallel_for(
        "vulpes::pruning::count", teams(space, count, team_threads), KOKKOS_LAMBDA(const Member& team) {
          const Chunk c = view.chunks[team.league_rank()];
          const std::uint32_t rank = view.pruned_of(c.tensor);
          if (view.state->next.skip || rank == 0) return;
          Selection selection = view.select(c.tensor, rank);
          const std::uint32_t known = selection.prefix(digit);
          const int above = digit == 0 ? 31 : shift_of(digit - 1);
          std::uint32_t* counts = view.histograms + digit * view.stride + static_cast<std::int64_t>(c.tensor) * bins;
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, c.begin, c.end), [&](std::uint32_t j) {
            const std::uint32_t bits = magnitude_bits(parameters[j]);
            if (bits >> above != known >> above) return;
            Kokkos::atomic_add(&counts[bits >> shift_of(digit) & digit_mask(digit)], 1u);
          });
        });
  }
  Kokkos::parallel_for(
      "vulpes::pruning::apply", teams(space, count, team_threads), KOKKOS_LAMBDA(const Member& team) {
        const Chunk c = view.chunks[team.league_rank()];
        const std::uint32_t rank = view.pruned_of(c.tensor);
        if (view.state->next.skip || rank == 0) return;
        Selection selection = view.select(c.tensor, rank);
        const std::uint32_t threshold = selection.prefix(digits);
        const std::uint32_t words = (c.end - c.begin + mask_bits - 1) / mask_bits;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, words), [&](std::uint32_t w) {
          const std::uint32_t begin = c.begin + w * mask_bits;
          std::uint32_t word = 0;
          for (std::uint32_t l = 0; l < mask_bits && begin + l < c.end; ++l) {
            const std::uint32_t j = begin + l;
            if (magnitude_bits(parameters[j]) > threshold) continue;
            word |= 1u << l;
            parameters[j] = target[j] = first[j] = second[j] = 0.0f;
          }
          mask[begin / mask_bits] = word;
        });
      });
}

#define INSTANTIATE(S)                                                                                        \
  template struct Pruning<S>;                                                                                 \
  template void prune<S>(const S&, const Pruning<S>&, const PruningRules&, const OptimiserBuffers<S, float>&, \
                         const StepStateRef<S>&);
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::kernels
