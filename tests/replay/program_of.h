// The recordings of the tests as programs, each compiled once.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/program.h"

#include "tests/trace/samples.h"

namespace headroom::replay {

inline const Program& program_of(std::string_view recording_name) {
  const std::string name(recording_name);
  struct Compiled {
    trace::Trace trace{};
    Program program{};
  };
  static std::map<std::string, Compiled> all;
  const auto [at, is_new] = all.try_emplace(name);
  if (is_new) {
    at->second.trace = trace::testing::trace_of(trace::testing::recording(name));
    at->second.program = compile_with_empty_caches(at->second.trace, at->second.trace.devices[0]);
  }
  return at->second.program;
}

}  // namespace headroom::replay
