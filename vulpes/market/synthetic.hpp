// The synthetic market: a random walk plus a mean-reverting component.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "vulpes/core/random.hpp"
#include "vulpes/io/config.hpp"
#include "vulpes/market/bars.hpp"

namespace vulpes::market {

/// `bars` hourly bars from 2020-01-01T00:00Z as one segment. log price = log 100 + random walk + x, where x is a
/// stationary AR(1) with coefficient phi and standard deviation component_sd, both sampled at `substeps` points a bar:
/// x has coefficient phi^(1/substeps) a sub-step, which makes the AR(1) exact at either sampling. A bar's open is its
/// first sub-step, its close the last, so that open differs from the previous close by one sub-step. Volume is
/// independent of prices.
///
/// A pure function of (config, key, path, bar): prefixes agree whatever the length. `component` (may be null) receives
/// x at each close; it is the hidden state, for the full-information optimum and tests only.
Bars generate_synthetic(const io::SyntheticConfig& config, RandomKey key, std::uint32_t path, std::size_t bars,
                        std::vector<double>* component = nullptr);

}  // namespace vulpes::market
