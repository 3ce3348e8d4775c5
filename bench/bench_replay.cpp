// The replay: memory a row, and draw, gather and priorities of a batch.
#include "training.hpp"
#include "vulpes/kernels/formulas/priority.hpp"

namespace vulpes::bench {
namespace {

using Space = DefaultSpace;
constexpr int batch = 1024;
constexpr double largest_bytes_of_a_million = 80e6;

/// Rows at random bars [first, first + bars), random leaves, random deltas of a batch.
void fill(const Space& space, const kernels::ReplayRing<Space>& ring, float* deltas, std::uint32_t first,
          std::uint32_t bars) {
  kernels::ReplayRow* rows = ring.rows.data();
  std::uint32_t* leaves = ring.tree.leaves.data();
  Kokkos::parallel_for(
      "vulpes::bench::fill", range(space, ring.capacity()), KOKKOS_LAMBDA(std::int64_t i) {
        const auto words = random_words({1, 1}, Purpose::test, 0, static_cast<std::uint32_t>(i));
        kernels::ReplayRow r{};
        r.bar = first + uniform_below(words[0], bars);
        r.before.exposure = r.after.exposure = uniform_float(words[1]);
        r.after.log_growth = 0.01f * uniform_float(words[2]);
        rows[i] = r;
        leaves[i] = 1 + (words[3] >> 8);
        if (i < batch) deltas[i] = uniform_float(words[2]);
      });
}

/// A full ring whose rows point at random bars, with random priorities.
struct FullReplay {
  const Training<Space>& market;
  trainer::Replay<Space> replay;
  kernels::Draws<Space> draws;
  trainer::StepBuffers<Space> buffers;
  Vector<float, Space> deltas;

  explicit FullReplay(std::int64_t rows)
      : market(training<Space>(demo)), draws(market.space, batch), buffers(market.space, market.shape, {batch}, 1) {
    const Space& space = market.space;
    replay.ring = kernels::ReplayRing<Space>(space, rows, 1024, 2);
    replay.counts =
        allocate_zeroed<Kokkos::View<kernels::PriorityCounts, MemoryOf<Space>>>(space, "vulpes::bench::counts");
    deltas = allocate<Vector<float, Space>>(space, "vulpes::bench::deltas", batch);
    const kernels::ReplayRing<Space>& ring = replay.ring;
    const auto& train = market.data.folds.front().train;
    fill(space, ring, deltas.data(), static_cast<std::uint32_t>(train.begin),
         static_cast<std::uint32_t>(train.end - train.begin - 1));
    const auto cursor = Kokkos::create_mirror_view(ring.cursor);
    cursor(0) = cursor(1) = static_cast<std::uint64_t>(ring.slots);
    Kokkos::deep_copy(space, ring.cursor, cursor);
    kernels::rebuild(space, ring.tree);
    space.fence("vulpes::bench::replay");
  }

  void draw_gather_update() const {
    const Space& space = market.space;
    const std::uint64_t* iteration = &market.learner->state.data()->now.iteration;
    kernels::draw(space, replay.ring, {1, 1}, iteration, draws);
    kernels::gather(space, replay.ring, market.table, market.rules.gather, iteration, draws, buffers.transitions());
    kernels::update_priorities(space, replay.ring, market.rules.priority, deltas.data(), nullptr, draws, replay.counts);
  }
};

void replay(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const FullReplay& r = kept<FullReplay>(std::to_string(rows), [&] { return std::make_unique<FullReplay>(rows); });
  const double bytes_a_row = static_cast<double>(r.replay.ring.bytes()) / r.replay.ring.capacity();
  if (bytes_a_row * 1e6 > largest_bytes_of_a_million) return state.SkipWithError("a million rows take more than 80 MB");
  measure(state, r.market.space, [&] { r.draw_gather_update(); });
  kernels::WorkSizes sizes = r.market.sizes;
  sizes.tree_levels = r.replay.ring.tree.view.levels;
  set_rates(state,
            kernels::total_work(sizes, {{"vulpes::sample::draw", batch},
                                        {"vulpes::sample::gather", batch},
                                        {"vulpes::sample::priorities", batch},
                                        {"vulpes::segment_tree::update", batch}}),
            batch);
  state.counters["bytes_a_row"] = bytes_a_row;
}

void add_benchmarks() {
  benchmark::RegisterBenchmark("replay/draw_gather_update", replay)
      ->Arg(131072)
      ->Arg(1 << 20)
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

}  // namespace
}  // namespace vulpes::bench

int main(int argc, char** argv) { return vulpes::bench::run(argc, argv, vulpes::bench::add_benchmarks); }
