// `headroom demo`, in two acts. First a PyTorch recording is replayed (tour.h); then a small device
// is filled, fragmented and emptied, and allocated, reserved and device-used are read at each step.
// In two parts that tests can take one by one: play it, then draw it or write it as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/memory/account.h"
#include "headroom/memory/out_of_memory.h"

#include "cli/command.h"
#include "cli/tour.h"

namespace headroom::cli {

struct DemoStep {
  std::string name;      // one word
  std::string sentence;  // what happened, and what to see
  std::string settings;  // of the allocator; empty are the defaults
  std::uint64_t allocated_bytes = 0;
  memory::Account account{};
  // How the reserved memory is divided, largest first; drawn where that is the point.
  std::vector<memory::SegmentInfo> segments{};
  bool shows_segments = false;
  // Of the request that failed in this step.
  std::optional<memory::OutOfMemoryReport> failure{};
};

struct Demo {
  std::optional<Tour> tour{};  // nothing where the recording is not there
  device::DeviceId device{};
  std::uint64_t capacity_bytes = 0;
  std::vector<DemoStep> steps{};
};

// The second act alone. The same bytes each time. Throws Error when this machine has no 256 MiB to
// give.
[[nodiscard]] Demo play_demo();

[[nodiscard]] std::string draw_demo(const Demo& demo, const Context& context);

[[nodiscard]] std::string demo_json(const Demo& demo);

}  // namespace headroom::cli
