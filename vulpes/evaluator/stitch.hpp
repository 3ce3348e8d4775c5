// One out-of-sample curve from the walks of a backtest.
#pragma once

#include <vector>

#include "vulpes/evaluator/backtest.hpp"
#include "vulpes/evaluator/metrics.hpp"

namespace vulpes::evaluator {

/// Chains walks (of segments, test paths or folds, in their order) into one performance. Each walk began with a fresh
/// account, so its currency amounts are scaled to the equity with which the walk before it ended: returns, exposure and
/// turnover are unchanged. A position that is held at a walk's end stays an open trade. A ruined account's position is
/// closed in its last bar for what is left of it.
Performance stitch(const std::vector<WalkResult>& walks, double bars_a_year);

}  // namespace vulpes::evaluator
