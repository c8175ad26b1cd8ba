// The cost of each call of a device, by size, on an idle device and on a busy one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/device/device.h"

#include "cli/output/progress.h"
#include "cli/output/spread.h"

namespace headroom::cli {

struct CallCost {
  std::string call;              // "allocate_segment"
  std::uint64_t size_bytes = 0;  // 0 where it has none
  std::uint64_t handles = 0;     // how many the size was made of, where that matters
  Spread idle_us{};
  std::optional<Spread> loaded_us{};  // while work ran on another stream
  bool waits = false;                 // for that work
};

struct DeviceBenchOptions {
  int rounds = 7;
  double load_ms = 50;  // how long the work on the other stream takes; 0: none
};

struct DeviceBench {
  std::string device;
  std::string name;    // of the card
  double load_ms = 0;  // as measured; 0 where the device does its work at once
  std::vector<CallCost> calls{};
  std::vector<std::string> notes{};
};

// The device's memory is used, and given back. Throws Error for a call that fails.
[[nodiscard]] DeviceBench bench_device(device::Device& device,
                                       const DeviceBenchOptions& options,
                                       const Progress& progress);

}  // namespace headroom::cli
