// The audit: trains some folds of a configuration under observation and says which rules of the design held.
#pragma once

#include <string>

#include "vulpes/audit/rows.hpp"
#include "vulpes/audit/times.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/trainer/step.hpp"

namespace vulpes::audit {

struct Options {
  std::int64_t steps = 1000;  ///< of each fold
};

/// A library's kernel in a step, listed apart.
struct LibraryKernel {
  std::string region, name;
  std::int64_t teams;
};

struct Report {
  std::string space, products;  ///< the execution space; what multiplies matrices
  io::Config config;            ///< that was run
  std::vector<Row> rows;
  StepTimes times;
  std::vector<LibraryKernel> library;
  std::int64_t nodes = 0;  ///< of the step's largest graph; 0: none was seen

  bool broken() const;
};

/// What is run of `config`: two walk-forward folds at least, `steps` steps each, at least two epochs a fold.
io::Config audited(io::Config config, const Options& options);

/// Trains the first two folds under observation, then the second one alone, unobserved and, on a device, with the gate:
/// it must end the same. Throws InputError and RunError as training does.
Report run(const io::Config& config, const Options& options);

/// What the rows must know of a training as `config` describes it.
template <class Space>
Facts make_facts(const io::Config& config, const trainer::StepContext<Space>& context);

/// For people.
std::string to_text(const Report& report);
/// For programs: JSON. `commit`: of the program.
std::string to_json(const Report& report, const std::string& commit);

/// Hash of the source folders that an audit vouches for (cmake/source_hash.cmake).
const char* source_hash();

}  // namespace vulpes::audit
