// One training step from a file, everything that it computes written to another: docs/step-format.md.
#pragma once

#include <string>

#include "vulpes/io/config.hpp"
#include "vulpes/io/hdf5.hpp"

namespace vulpes::trainer {

/// Where a step's batch comes from.
enum class StepSource {
  batch,      ///< the state file holds it
  replay,     ///< drawn from a replay in the state file
  checkpoint  ///< drawn from the replay of a run's full checkpoint, whose data are read again
};

/// Throws InputError for a file that is none of them.
StepSource step_source(const io::H5Reader& state);

/// Runs one step on `config.run.device` with the kernels of training and writes `out`. `state` was opened with
/// Trust::any; of a checkpoint `config` may differ in run.device alone. Without `trace` the kernels get no memory for
/// what training does not write (goals, donors), and these are left out. Throws InputError for whatever `state` lacks.
void run_step_file(const io::H5Reader& state, const io::Config& config, const std::string& out, bool trace);

}  // namespace vulpes::trainer
