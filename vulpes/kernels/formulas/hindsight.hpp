// Hindsight experience replay (Andrychowicz et al. 2017, section 4.5, strategy `future`): a share of the drawn rows
// takes as goal what the same episode achieved at or after them, so that a goal which was missed still teaches.
#pragma once

#include "vulpes/core/random.hpp"
#include "vulpes/kernels/replay_rows.hpp"

namespace vulpes::kernels {

struct HindsightRules {
  float share = 0;            ///< probability with which a row is relabelled; 0: off
  std::uint32_t horizon = 1;  ///< donors: this row and the next horizon - 1
  RandomKey key;
};

/// The rows of one episode from a drawn row onwards.
struct Donors {
  std::uint32_t first;  ///< ring index of the drawn row
  std::uint32_t limit;  ///< rows of its account from it on that are in the ring, at most the horizon; 0: not relabelled
  std::uint32_t word;   ///< random, chooses one of them

  /// Decides by the random stream whether the row at position `k` of the batch is relabelled. `write`: which write of
  /// its slot the row is; RingView::no_write is never relabelled.
  KOKKOS_INLINE_FUNCTION static Donors of(const HindsightRules& rules, const RingView& ring, std::uint64_t iteration,
                                          std::int64_t k, std::uint32_t row, std::uint64_t write) {
    Donors d{row, 0, 0};
    if (!(rules.share > 0.0f) || write == RingView::no_write) return d;
    const auto words = random_words(rules.key, Purpose::hindsight, iteration, static_cast<std::uint32_t>(k));
    if (!(uniform_float(words[0]) < rules.share)) return d;
    const std::uint64_t present = ring.cursor[0] - write;
    d.limit = present < rules.horizon ? static_cast<std::uint32_t>(present) : rules.horizon;
    d.word = words[1];
    return d;
  }

  /// Ring index of the row `ahead` bars later, ahead < limit.
  KOKKOS_INLINE_FUNCTION std::uint32_t row(const RingView& ring, std::uint32_t ahead) const {
    const std::uint64_t capacity = static_cast<std::uint64_t>(ring.slots) * ring.envs;
    const std::uint64_t at = first + static_cast<std::uint64_t>(ahead) * ring.envs;
    return static_cast<std::uint32_t>(at < capacity ? at : at - capacity);
  }
  /// The row that `count` reads first, to be fetched ahead of it.
  KOKKOS_INLINE_FUNCTION std::uint32_t probe(const RingView& ring) const { return row(ring, limit - 1); }

  /// How many of the rows are of the drawn row's episode. Offsets count up within an episode and begin again at 0
  /// after it, so a row `ahead` bars later belongs to it if and only if its offset is that much larger: true up to the
  /// episode's last row and false ever after, hence a binary search. Most episodes outlast the horizon: its end first.
  KOKKOS_INLINE_FUNCTION std::uint32_t count(const RingView& ring) const {
    const std::uint32_t offset = ring.rows[first].episode_offset;
    std::uint32_t low = 0, high = limit;  // row `low` belongs to the episode, row `high` does not
    for (std::uint32_t ahead = limit - 1; high - low > 1; ahead = low + (high - low) / 2) {
      if (ring.rows[row(ring, ahead)].episode_offset == offset + ahead)
        low = ahead;
      else
        high = ahead;
    }
    return low + 1;
  }
  /// Ring index of the donor, whose growth after its decision is the new goal; no_row if the row keeps its own.
  KOKKOS_INLINE_FUNCTION std::uint32_t choose(const RingView& ring) const {
    return limit > 0 ? row(ring, uniform_below(word, count(ring))) : no_row;
  }
};

}  // namespace vulpes::kernels
