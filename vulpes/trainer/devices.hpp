// Choice of the execution space by name.
#pragma once

#include <string>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/spaces.hpp"

namespace vulpes::trainer {

/// Calls `f(Space())` for the back end called `name` ("default": the first of CUDA, OpenMP, Serial that is built in)
/// and returns its result. Throws InputError for a back end that this build lacks.
template <class F>
auto on_device(const std::string& name, const F& f) {
  if (name == "default") return f(DefaultSpace());
#define VULPES_CASE(S) \
  if (lower_case(S::name()) == name) return f(S());
  const auto lower_case = [](std::string text) {
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return text;
  };
  VULPES_FOR_EACH_SPACE(VULPES_CASE)
#undef VULPES_CASE
  throw InputError("run.device: this build has no '" + name + "' back end; 'vulpes info' lists those it has");
}

}  // namespace vulpes::trainer
