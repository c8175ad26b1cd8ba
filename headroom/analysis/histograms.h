// How large blocks are, and how long they live.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/analysis/index.h"

namespace headroom::analysis {

struct HistogramBin {
  std::uint64_t low = 0;   // from here ...
  std::uint64_t high = 0;  // ... to below this
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // asked for
};

// Sizes asked for, by powers of two, from the smallest that occurs to the largest. The blocks that
// were there at the start are counted too.
[[nodiscard]] std::vector<HistogramBin> size_histogram(const TraceIndex& index);

struct LifetimeHistogram {
  // From allocation to free_completed, by powers of ten, of the blocks that did both.
  std::vector<HistogramBin> by_events{};
  std::vector<HistogramBin> by_time_us{};
  HistogramBin initial{};  // allocated before the first event
  HistogramBin final{};    // allocated while recording, and never freed
};

[[nodiscard]] LifetimeHistogram lifetime_histogram(const TraceIndex& index);

}  // namespace headroom::analysis
