// Traces of every shape, for tests of what is written and read.
#pragma once

#include <cstdint>
#include <string>

#include "headroom/trace/trace.h"

namespace headroom::trace::testing {

// The same for the same seed. About `events` events in all; every field takes odd values too.
[[nodiscard]] Trace random_trace(std::uint64_t seed, std::size_t events);

// The first difference in words, or empty: tables, events, segments, everything.
[[nodiscard]] std::string difference(const Trace& a, const Trace& b);

}  // namespace headroom::trace::testing
