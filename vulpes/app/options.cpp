#include <Kokkos_Core.hpp>
#include <filesystem>
#include <sstream>

#include "vulpes/app/commands.hpp"
#include "vulpes/app/version.hpp"
#include "vulpes/core/gemm.hpp"
#include "vulpes/io/config_io.hpp"
#include "vulpes/io/log.hpp"
#include "vulpes/trainer/devices.hpp"

namespace vulpes::app {

namespace {

namespace fs = std::filesystem;

/// The configuration's file, or a hint that bars are given in another way.
std::string not_bars(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension != ".csv" && extension != ".parquet") return {};
  return "'" + path + "' looks like bars, not like a configuration (TOML): give bars as --data " + path;
}

}  // namespace

CLI::Validator existing_file(const std::string& hint) {
  return CLI::Validator(
      [hint](const std::string& path) -> std::string {
        std::error_code ignored;
        if (fs::is_directory(path, ignored)) return "'" + path + "' is a folder; " + hint;
        if (fs::exists(path, ignored)) return {};
        const std::string place = fs::absolute(path, ignored).string();
        return "no file '" + path + "'" + (place == path ? "" : " (looked at " + place + ")") + "; " + hint;
      },
      "FILE");
}

void check_device(const std::string& device) {
  trainer::on_device(device, [](const auto&) {});
}

void ConfigOptions::add_to(CLI::App& sub) {
  sub.add_option("CONFIG", file, "TOML file; without one, the defaults")
      ->check(CLI::Validator([](const std::string& path) { return not_bars(path); }, ""))
      ->check(existing_file("give a TOML file of settings, or leave it away for the defaults"));
  sub.add_option("--set", settings, "name=value, as often as needed; names below")->allow_extra_args(false);
  sub.add_option("--data", data, "CSV or Parquet file of bars; without one, the synthetic market")
      ->check(existing_file(bars_hint));
  sub.add_option("--seed", seed, "seed of every random stream; sets run.seed")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{4294967295}));
  sub.footer([] { return "Settings (TOML sections, or --set):\n" + io::settings_help(); });
}

io::Config ConfigOptions::read(const io::Config& defaults) const {
  io::Config config = file.empty() ? defaults : io::read_config(file);
  for (const std::string& s : settings) io::apply_setting(config, s);
  if (!data.empty()) config.data.file = data;
  if (seed >= 0) config.run.seed = seed;
  io::check(config);
  return config;
}

const char* source_commit() { return commit; }

std::string version_text() {
  std::ostringstream text;
  text << "vulpes " << version << " (" << commit << ")\n"
       << "Kokkos " << KOKKOS_VERSION / 10000 << "." << KOKKOS_VERSION / 100 % 100 << "." << KOKKOS_VERSION % 100
       << ", back ends:";
#define VULPES_NAME(S) text << " " << S::name();
  VULPES_FOR_EACH_SPACE(VULPES_NAME)
#undef VULPES_NAME
  text << "\nmatrix products: " << gemm_description<DefaultSpace>();
  return text.str();
}

void start_logging(const std::string& level) { io::start_logging(level); }

}  // namespace vulpes::app
