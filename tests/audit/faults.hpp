// What a step must not do and portable code cannot do.
#pragma once

#include "vulpes/core/spaces.hpp"

namespace vulpes::audit::test {

/// Asks whether an event has happened. Host spaces have none to ask.
template <class Space>
void poll(const Space&) {}

}  // namespace vulpes::audit::test

#include "faults_cuda.hpp"
