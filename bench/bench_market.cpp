// The market layer: features, normaliser, account, import.
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "harness.hpp"
#include "vulpes/core/random.hpp"
#include "vulpes/io/table.hpp"
#include "vulpes/market/features.hpp"
#include "vulpes/market/import.hpp"
#include "vulpes/market/synthetic.hpp"
#if defined(VULPES_BENCH_ARROW)
#include "arrow_reader.hpp"
#endif

namespace vulpes::bench {
namespace {

using Space = DefaultSpace;
constexpr std::size_t feature_bars = 1'000'000;
constexpr std::int64_t csv_rows = 5'000'000;

struct MillionBars {
  io::Config config;
  market::Bars bars = market::generate_synthetic(config.synthetic, {1, 0}, 0, feature_bars);
  market::FeatureSet features = market::compute_features(bars, config.features);
};
const MillionBars& million_bars() {
  return kept<MillionBars>("bars", [] { return std::make_unique<MillionBars>(); });
}

void features(benchmark::State& state) {
  const MillionBars& m = million_bars();
  for (auto _ : state) benchmark::DoNotOptimize(market::compute_features(m.bars, m.config.features));
  const double rows = feature_bars, columns = m.features.columns;
  set_rates(state, {0, rows * (8 + 4 + 5 * 8 + 8 * columns)}, rows);
}

void normaliser_fit(benchmark::State& state) {
  const MillionBars& m = million_bars();
  for (auto _ : state)
    benchmark::DoNotOptimize(market::Normaliser::fit(m.features, 0, feature_bars, m.config.features.clip, nullptr));
  set_rates(state, {0, 8.0 * feature_bars * m.features.columns}, feature_bars);
}

void normaliser_apply(benchmark::State& state) {
  const MillionBars& m = million_bars();
  const auto normaliser = market::Normaliser::fit(m.features, 0, feature_bars, m.config.features.clip, nullptr);
  for (auto _ : state) benchmark::DoNotOptimize(normaliser.apply(m.features));
  const double elements = static_cast<double>(feature_bars) * m.features.columns;
  set_rates(state, {4 * elements, 12 * elements}, feature_bars);
}

constexpr int accounts = 4096;
constexpr std::uint32_t account_bars = 65536;

/// Accounts that trade at random, each at its own bar, with the bars in device memory.
struct Accounts {
  Space space;
  Vector<market::Bar, Space> bars;
  Vector<market::Account, Space> state;
  market::AccountRules rules;
};

void advance_all(const Accounts& a, std::uint64_t now) {
  const market::Bar* bars = a.bars.data();
  market::Account* state = a.state.data();
  const market::AccountRules rules = a.rules;
  Kokkos::parallel_for(
      "vulpes::bench::account", range(a.space, accounts), KOKKOS_LAMBDA(std::int64_t i) {
        const auto words = random_words({1, 1}, Purpose::test, now, static_cast<std::uint32_t>(i));
        const market::Action action{static_cast<std::uint8_t>(uniform_below(words[0], 9)),
                                    static_cast<std::uint8_t>(uniform_below(words[1], 3)),
                                    static_cast<std::uint8_t>(uniform_below(words[2], 3))};
        const auto at = static_cast<std::uint32_t>((now + 13 * static_cast<std::uint64_t>(i)) % (account_bars - 1));
        if (market::advance(state[i], rules, action, bars[at], bars[at + 1]).ruined)
          state[i] = market::open_account(rules);
      });
}

void account(benchmark::State& state) {
  const Accounts& a = kept<Accounts>("accounts", [] {
    auto made = std::make_unique<Accounts>();
    const io::Config config;
    const auto host =
        market::account_bars(market::generate_synthetic(config.synthetic, {1, 0}, 0, account_bars), config.account);
    made->rules = market::make_account_rules(config.account);
    made->bars = allocate<Vector<market::Bar, Space>>(made->space, "vulpes::bench::bars", account_bars);
    made->state = allocate<Vector<market::Account, Space>>(made->space, "vulpes::bench::accounts", accounts);
    const auto mirror = Kokkos::create_mirror_view(made->bars);
    for (std::uint32_t i = 0; i < account_bars; ++i) mirror(i) = host[i];
    Kokkos::deep_copy(made->bars, mirror);
    const auto opened = Kokkos::create_mirror_view(made->state);
    for (int i = 0; i < accounts; ++i) opened(i) = market::open_account(made->rules);
    Kokkos::deep_copy(made->state, opened);
    return made;
  });
  std::uint64_t time = 0;
  measure(state, a.space, [&] { advance_all(a, time++); });
  set_rates(
      state,
      {kernels::work::account_flops * accounts, accounts * (2.0 * sizeof(market::Bar) + 2.0 * sizeof(market::Account))},
      accounts);
}

/// A CSV file of minute bars in a folder that goes with it.
struct CsvFile {
  std::filesystem::path folder, path;
  double bytes = 0;

  CsvFile() {
    std::string name = (std::filesystem::temp_directory_path() / "vulpes-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot create " + name);
    folder = name;
    path = folder / "bars.csv";
    std::FILE* out = std::fopen(path.c_str(), "w");
    if (!out) throw std::runtime_error("cannot write " + path.string());
    std::string text = "time,open,high,low,close,volume\n";
    char number[32];
    const auto append = [&](double value, char after) {
      text.append(number, std::to_chars(number, number + sizeof(number), value, std::chars_format::fixed, 2).ptr);
      text += after;
    };
    double close = 100;
    for (std::int64_t i = 0; i < csv_rows; ++i) {
      const auto words = random_words({1, 1}, Purpose::test, 1, static_cast<std::uint32_t>(i));
      const double open = close;
      close = open < 50 || open > 200 ? 100 : open + 0.2 * (uniform_float(words[0]) - 0.5);
      const double up = 0.01 + 0.1 * uniform_float(words[1]), down = 0.01 + 0.1 * uniform_float(words[2]);
      text.append(number, std::to_chars(number, number + sizeof(number), 1577836800 + 60 * i).ptr);
      text += ',';
      append(open, ',');
      append(std::max(open, close) + up, ',');
      append(std::min(open, close) - down, ',');
      append(close, ',');
      append(1000.0 * uniform_float(words[3]), '\n');
      if (text.size() > (1 << 20) || i + 1 == csv_rows) {
        if (std::fwrite(text.data(), 1, text.size(), out) != text.size())
          throw std::runtime_error("cannot write " + path.string());
        bytes += static_cast<double>(text.size());
        text.clear();
      }
    }
    if (std::fclose(out) != 0) throw std::runtime_error("cannot write " + path.string());
  }
  ~CsvFile() { std::filesystem::remove_all(folder); }
};
const CsvFile& csv_file() {
  return kept<CsvFile>("csv", [] { return std::make_unique<CsvFile>(); });
}

void expect_rows(benchmark::State& state, std::int64_t rows) {
  if (rows != csv_rows) state.SkipWithError("not all rows were read");
}

/// From the file to checked bars cut into segments.
void import_ours(benchmark::State& state) {
  const CsvFile& file = csv_file();
  for (auto _ : state) {
    std::vector<std::string> notes;
    expect_rows(state,
                static_cast<std::int64_t>(market::bars_from_table(io::read_bars_table(file.path), 0, notes).size()));
  }
  set_rates(state, {0, file.bytes}, csv_rows);
}

#if defined(VULPES_BENCH_ARROW)
void import_arrow(benchmark::State& state) {
  const CsvFile& file = csv_file();
  for (auto _ : state) expect_rows(state, read_with_arrow(file.path));
  set_rates(state, {0, file.bytes}, csv_rows);
}
#endif

/// The bytes alone, as cat reads them.
void import_bytes(benchmark::State& state) {
  const CsvFile& file = csv_file();
  std::vector<char> buffer(1 << 17);
  for (auto _ : state) {
    const int in = open(file.path.c_str(), O_RDONLY);
    double bytes = 0;
    for (ssize_t n; (n = read(in, buffer.data(), buffer.size())) > 0;) bytes += static_cast<double>(n);
    close(in);
    if (bytes != file.bytes) state.SkipWithError("not all bytes were read");
  }
  set_rates(state, {0, file.bytes}, csv_rows);
}

void add_benchmarks() {
  using benchmark::kMillisecond;
  benchmark::RegisterBenchmark("market/features", features)->Unit(kMillisecond)->UseRealTime();
  benchmark::RegisterBenchmark("market/normaliser_fit", normaliser_fit)->Unit(kMillisecond)->UseRealTime();
  benchmark::RegisterBenchmark("market/normaliser_apply", normaliser_apply)->Unit(kMillisecond)->UseRealTime();
  benchmark::RegisterBenchmark("market/account", account)->Unit(benchmark::kMicrosecond)->UseRealTime();
#if defined(VULPES_BENCH_ARROW)
  benchmark::RegisterBenchmark("import/ours", import_ours)->Unit(kMillisecond)->UseRealTime()->Iterations(1);
  benchmark::RegisterBenchmark("import/arrow", import_arrow)->Unit(kMillisecond)->UseRealTime()->Iterations(1);
#endif
  benchmark::RegisterBenchmark("import/bytes", import_bytes)->Unit(kMillisecond)->UseRealTime()->Iterations(1);
}

}  // namespace
}  // namespace vulpes::bench

int main(int argc, char** argv) { return vulpes::bench::run(argc, argv, vulpes::bench::add_benchmarks); }
