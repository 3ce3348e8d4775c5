// vulpes data check|import|synth
#include <algorithm>
#include <cstdio>

#include "vulpes/app/commands.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/table.hpp"
#include "vulpes/io/time_text.hpp"
#include "vulpes/market/features.hpp"
#include "vulpes/market/import.hpp"
#include "vulpes/market/synthetic.hpp"
#include "vulpes/trainer/folds.hpp"

namespace vulpes::app {
namespace {

struct DataOptions {
  std::string file, out;
  io::ImportOptions import;
  std::int64_t bar_seconds = 0;
  ConfigOptions config;
  std::int64_t bars = 10000;
};

/// What gaps and closures are, and the longest of the gaps.
void explain_gaps(const market::Bars& bars, std::int64_t given_seconds) {
  constexpr std::size_t most = 5;
  const double seconds = given_seconds > 0 ? static_cast<double>(given_seconds) : market::bar_seconds(bars);
  std::vector<std::size_t> gaps;  // bars after one
  for (std::size_t i = 1; i < bars.size(); ++i) {
    if (bars.segment[i] != bars.segment[i - 1]) gaps.push_back(i);
  }
  std::printf(
      "  A gap is missing data: features begin anew after it, and no return or episode reaches across.\n"
      "  A closure is a regular pause of the market (night, weekend, holiday): nothing is missing, and positions are "
      "held "
      "through it.\n");
  const auto length = [&](std::size_t i) { return bars.time[i] - bars.time[i - 1]; };
  std::stable_sort(gaps.begin(), gaps.end(), [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  for (std::size_t k = 0; k < std::min(most, gaps.size()); ++k) {
    const std::size_t i = gaps[k];
    std::printf("    %.0f bars missing between %s and %s\n", static_cast<double>(length(i)) / 1e9 / seconds - 1,
                io::format_time(bars.time[i - 1]).c_str(), io::format_time(bars.time[i]).c_str());
  }
  if (gaps.size() > most) std::printf("    and %zu shorter gaps\n", gaps.size() - most);
}

/// How many bars features leave, and whether the default settings can train on them.
void explain_use(const market::Bars& bars) {
  const io::Config config;
  const auto warm_up = static_cast<std::size_t>(market::compute_features(bars.slice(0, 1), config.features).warm_up);
  std::size_t usable = 0, age = 0;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    age = i > 0 && bars.segment[i] == bars.segment[i - 1] ? age + 1 : 0;
    usable += age >= warm_up;
  }
  std::printf("  %zu bars can be traded: features need %zu bars to warm up at the start and after each gap\n", usable,
              warm_up);
  try {
    trainer::make_folds(bars.size(), config.folds, warm_up, static_cast<std::size_t>(config.agent.n_step),
                        static_cast<std::size_t>(config.collect.window));
    std::printf("  enough for a training with the default settings\n");
  } catch (const InputError& e) {
    std::printf("  not enough for a training with the default settings: %s\n", e.what());
  }
}

/// Imports, checks and describes a file.
io::Table check(const DataOptions& o) {
  io::Table table = io::read_bars_table(o.file, o.import);
  std::vector<std::string> notes = table.warnings;
  const market::Bars bars = market::bars_from_table(table, o.bar_seconds, notes);
  std::printf("%s: %s to %s\n", o.file.c_str(), io::format_time(bars.time.front()).c_str(),
              io::format_time(bars.time.back()).c_str());
  for (const std::string& note : notes) std::printf("  %s\n", note.c_str());
  for (const auto& extra : bars.extra) std::printf("  extra column '%s' becomes a feature\n", extra.name.c_str());
  std::printf("  %.0f bars a year\n", market::bars_a_year(bars));
  explain_gaps(bars, o.bar_seconds);
  explain_use(bars);
  return table;
}

void synthesise(const DataOptions& o) {
  const io::Config config = o.config.read();
  const market::Bars bars = market::generate_synthetic(
      config.synthetic, {static_cast<std::uint32_t>(config.run.seed), 0}, 0, static_cast<std::size_t>(o.bars));
  io::Table table;
  table.time_ns = bars.time;
  table.columns = {
      {"open", bars.open}, {"high", bars.high}, {"low", bars.low}, {"close", bars.close}, {"volume", bars.volume}};
  io::write_parquet(table, o.out);
  std::printf("%s: %zu bars\n", o.out.c_str(), bars.size());
}

void add_import_options(CLI::App& sub, DataOptions& o) {
  sub.add_option("FILE", o.file, "CSV or Parquet file of bars")
      ->required()
      ->check(
          existing_file("give a CSV or Parquet file with columns time, open, high, low, close and, if known, volume"));
  sub.add_option("--duplicates", o.import.duplicates, "bars with the same time: error, first or last")
      ->check(CLI::IsMember({"error", "first", "last"}))
      ->capture_default_str();
  sub.add_option("--time-column", o.import.time_column, "name of the time column; default: found by its name");
  sub.add_option("--timezone", o.import.timezone, "of times without an offset: UTC or +hh:mm")->capture_default_str();
  sub.add_option("--bar-seconds", o.bar_seconds, "bar length; 0: the most frequent distance")->capture_default_str();
}

}  // namespace

void add_data(CLI::App& app, Command& command) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* data = app.add_subcommand("data", "Check, import or generate bars");
  data->require_subcommand(1);

  CLI::App* checker = data->add_subcommand("check", "Check a file of bars and say what is in it");
  add_import_options(*checker, *options);
  checker->callback([options, &command] {
    command = [options] {
      check(*options);
      return ExitCode::done;
    };
  });

  CLI::App* importer = data->add_subcommand("import", "Check a file of bars and write it as Parquet");
  add_import_options(*importer, *options);
  importer->add_option("--out", options->out, "Parquet file to write")->required();
  importer->callback([options, &command] {
    command = [options] {
      io::write_parquet(check(*options), options->out);
      std::printf("  written to %s\n", options->out.c_str());
      return ExitCode::done;
    };
  });

  CLI::App* synth = data->add_subcommand("synth", "Write bars of the synthetic market as Parquet");
  synth->add_option("--config", options->config.file, "TOML file with the synthetic.* settings")
      ->check(existing_file("give a TOML file of settings"));
  synth->add_option("--set", options->config.settings, "name=value, as in 'vulpes train'")->allow_extra_args(false);
  synth->add_option("--seed", options->config.seed, "seed")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{4294967295}));
  synth->add_option("--bars", options->bars, "number of bars")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000000}))
      ->capture_default_str();
  synth->add_option("--out", options->out, "Parquet file to write")->required();
  synth->callback([options, &command] {
    command = [options] {
      synthesise(*options);
      return ExitCode::done;
    };
  });
}

}  // namespace vulpes::app
