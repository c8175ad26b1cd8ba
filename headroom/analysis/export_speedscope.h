// Bytes by stack at one moment, for www.speedscope.app: one profile for each device that has any,
// in which a sample is a stack and its weight the bytes that it held. Annotations are frames around
// the stack, or instead of it where none was kept: `model/layer1` is `model`, then `layer1`.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "headroom/analysis/types.h"

namespace headroom::analysis {

struct SpeedscopeOptions {
  // After this number of events of each device (at most all); unset is the device's own peak of
  // allocated.
  std::optional<std::uint64_t> position{};
};

struct SpeedscopeSummary {
  std::size_t profiles = 0;
  std::size_t stacks = 0;
  std::uint64_t bytes = 0;
};

SpeedscopeSummary export_speedscope(const Trace& trace,
                                    std::ostream& out,
                                    const SpeedscopeOptions& options = {});

}  // namespace headroom::analysis
