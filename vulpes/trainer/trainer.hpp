// Training: folds of epochs, each of collection and updates, then validation; checkpoints; test; summary.
#pragma once

#include <string>

#include "vulpes/io/config.hpp"
#include "vulpes/io/records.hpp"

namespace vulpes::trainer {

enum class Outcome { done, interrupted };

/// Trains as `config` says into `folder`; with `resume` it goes on from the newest readable checkpoint. Writes
/// config.toml, metrics, checkpoints and summary.json. Returns `interrupted` after a signal, once a checkpoint is
/// written. Throws InputError (configuration, data) and RunError (disk, diverged training).
Outcome train(const io::Config& config, const io::RunFolder& folder, bool resume);

/// Asks a training in this process to stop at the next opportunity; async-signal-safe.
void request_stop();

}  // namespace vulpes::trainer
