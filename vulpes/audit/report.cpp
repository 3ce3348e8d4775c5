// The audit's report as text and as JSON.
#include <ctime>
#include <nlohmann/json.hpp>

#include "vulpes/audit/audit.hpp"
#include "vulpes/io/config_io.hpp"

namespace vulpes::audit {
namespace {

constexpr const char* verdict_names[] = {"ok", "BROKEN", "n/a", ""};
const char* name(Verdict v) { return verdict_names[static_cast<int>(v)]; }

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

std::string to_text(const Report& r) {
  std::string text = "Audit on ";
  text += r.space + " (" + r.products + "), " + std::to_string(r.config.train.steps) + " steps a fold, batch " +
          std::to_string(r.config.train.batch) + "\n";
  std::string table;
  for (const Row& row : r.rows) {
    if (row.table != table) {
      table = row.table;
      text += '\n';
      text += padded(table, 62) + padded("allowed", 24) + padded("measured", 20) + "\n";
    }
    text += "  " + padded(row.name, 60) + padded(row.allowed, 24) + padded(row.measured, 20) + name(row.verdict);
    if (!row.detail.empty()) text += (row.verdict == Verdict::broken ? ": " : "  ") + row.detail;
    text += "\n";
  }
  if (r.nodes > 0) text += "\nThe largest graph of a step has " + std::to_string(r.nodes) + " nodes.\n";
  if (!r.library.empty()) {
    text += "\nLibrary kernels of a step (teams, product, function):\n";
    for (const LibraryKernel& k : r.library) {
      text += "  " + padded(std::to_string(k.teams), 8) + padded(k.region, 36) + k.name.substr(0, 100) + "\n";
    }
  }
  if (r.times.steps > 0) text += '\n', text += to_text(r.times);
  std::string broken;
  for (const Row& row : r.rows) {
    if (row.verdict == Verdict::broken) broken += (broken.empty() ? "" : "; ") + row.name;
  }
  if (broken.empty()) return text + "\nNo row is broken.\n";
  return text + "\nBroken: " + broken + ".\n";
}

std::string to_json(const Report& r, const std::string& commit) {
  nlohmann::ordered_json j;
  j["date"] = today();
  j["commit"] = commit;
  j["sources"] = source_hash();
  j["space"] = r.space;
  j["products"] = r.products;
  j["broken"] = r.broken();
  j["settings"] = io::changed_settings(r.config);
  for (const Row& row : r.rows) {
    j["rows"].push_back({{"table", row.table},
                         {"row", row.name},
                         {"allowed", row.allowed},
                         {"measured", row.measured},
                         {"verdict", name(row.verdict)},
                         {"detail", row.detail}});
  }
  j["graph_nodes"] = r.nodes;
  for (const LibraryKernel& k : r.library) {
    j["library_kernels"].push_back({{"product", k.region}, {"function", k.name}, {"teams", k.teams}});
  }
  auto& times = j["times"];
  times = {{"steps", r.times.steps},
           {"span_ms", 1e3 * r.times.span},
           {"busy_ms", 1e3 * r.times.busy},
           {"period_ms", 1e3 * r.times.period}};
  for (const PartTime& p : r.times.parts) {
    times["parts"].push_back(
        {{"part", p.part}, {"busy_ms", 1e3 * p.seconds}, {"overlapped_share", p.overlapped}, {"kernels", p.kernels}});
  }
  return j.dump(2) + "\n";
}

}  // namespace vulpes::audit
