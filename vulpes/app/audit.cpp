// vulpes audit: the rules of a step, an epoch's boundary and a fold's change, measured on the trainer itself.
#include "vulpes/audit/audit.hpp"

#include <cstdio>

#include "vulpes/app/commands.hpp"
#include "vulpes/io/durable.hpp"
#include "vulpes/io/records.hpp"

namespace vulpes::app {
namespace {

struct AuditOptions {
  ConfigOptions config;
  audit::Options audit;
  std::string json;
};

ExitCode run(const AuditOptions& o) {
  const io::Config config = o.config.read();
  check_device(config.run.device);
  const audit::Report report = audit::run(config, o.audit);
  std::fputs(audit::to_text(report).c_str(), stdout);
  if (!o.json.empty()) io::write_file_atomically(o.json, audit::to_json(report, source_commit()));
  return report.broken() ? ExitCode::failed : ExitCode::done;
}

}  // namespace

void add_audit(CLI::App& app, Command& command) {
  auto options = std::make_shared<AuditOptions>();
  CLI::App* sub = app.add_subcommand(
      "audit", "Train two folds under observation: what waits, copies or is launched that should not (docs/audit.md)");
  options->config.add_to(*sub);
  sub->add_option("--steps", options->audit.steps, "steps of each fold")
      ->check(CLI::Range(std::int64_t{8}, std::int64_t{1000000}))
      ->capture_default_str();
  sub->add_option("--json", options->json, "file to write the report to, with a hash of the sources it vouches for");
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace vulpes::app
