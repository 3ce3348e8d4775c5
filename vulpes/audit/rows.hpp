// The rows of the audit: what the design allows in each window of a training, and what was seen. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vulpes/audit/trace.hpp"
#include "vulpes/kernels/work.hpp"

namespace vulpes::audit {

enum class Verdict {
  ok,
  broken,
  unseen,  ///< cannot be seen on this back end, or did not happen
  shown    ///< a figure without a bound
};

struct Row {
  std::string table, name, allowed, measured;
  Verdict verdict;
  std::string detail;  ///< what was in the way
};

/// What the rows must know of the training besides the trace.
struct Facts {
  kernels::WorkSizes sizes;
  int batch = 0;
  int causal_rows = 0;  ///< rows of a measurement with all its interventions
  int variants = 1;     ///< of the step
  std::string graph_mode = "mega", forward = "tf32", backward = "fp32";
};

/// What the folds left behind, one entry a fold.
struct FoldFacts {
  std::vector<double> bytes;                     ///< allocated at its end
  std::vector<std::int64_t> setups, recordings;  ///< steps out of the ordinary; graphs made executable in them
  std::optional<bool> same_alone;                ///< a later fold of the run equals that fold alone, bit for bit
};

/// What a gate saw: steps that were queued while the device stood still.
struct GateFacts {
  std::int64_t wanted = 64;
  std::int64_t queued = 0;
  bool released_by_time = false;  ///< something waited for the device
  std::string unseen;             ///< why there was no gate; empty: there was one
};

std::vector<Row> step_rows(const Trace& trace, const Facts& facts, std::int64_t folds);
std::vector<Row> epoch_rows(const Trace& trace);
std::vector<Row> fold_rows(const Trace& trace, const FoldFacts& folds);
Row gate_row(const GateFacts& gate);

/// What work.hpp declares for a launch: by its own label, else by that of the product it is part of.
struct Declared {
  kernels::Work work;
  double elements;
};
std::optional<Declared> declared(const Origin& origin, const Facts& facts);

}  // namespace vulpes::audit
