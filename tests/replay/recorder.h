// Random traffic on our own CachingAllocator, recorded as PyTorch records it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/config.h"
#include "headroom/memory/stats.h"
#include "headroom/memory/types.h"
#include "headroom/trace/trace.h"

#include "tests/memory/recording.h"

namespace headroom::replay::testing {

struct TrafficOptions {
  std::string conf{};
  memory::PyTorchVersion version = memory::kPyTorch211;
  std::uint64_t card_bytes = 1_GiB;
  double limit_share = 1.0;  // of the card; set as per_process_memory_fraction
  int steps = 3000;
  int streams = 1;
  double hold = 0;         // share of frees that another stream holds up
  double empty_cache = 0;  // chance a step
  std::uint64_t largest_bytes = 64_MiB;
};

struct Recorded {
  std::vector<memory::testing::RecordedEvent> events{};
  std::vector<memory::SegmentInfo> final_segments{};
  std::string settings{};
  memory::Statistics statistics{};
  // Calls that leave no entry of their own.
  int empty_caches = 0;

  // The events from `first` on.
  [[nodiscard]] trace::Trace trace(std::size_t first = 0) const;
};

// On the meta device, where a held block stays held until the traffic says otherwise.
[[nodiscard]] Recorded record_traffic(const TrafficOptions& options, unsigned seed);
// On main memory, where other streams have nothing to do and are done at once.
[[nodiscard]] Recorded record_on_cpu(const TrafficOptions& options, unsigned seed);

}  // namespace headroom::replay::testing
