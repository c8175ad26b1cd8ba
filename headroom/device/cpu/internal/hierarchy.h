// The processor's caches and the machine's memory, as the system describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::device::internal {

struct CpuDescription {
  std::string name;                    // "Intel(R) Xeon(R) Processor @ 2.80GHz"
  std::string architecture;            // "x86-64"
  int cores = 1;                       // logical processors this process may run on
  std::vector<MemoryLevel> hierarchy;  // L1d, L2, L3 as far as known, then main memory
};

// Reads below `root`; whatever is missing there (containers, virtual machines) is filled in from
// what the C library knows, or left out. Never fails. Slow on large machines: read it once.
[[nodiscard]] CpuDescription describe_cpu(const std::vector<int>& processors,
                                          const std::filesystem::path& root = "/");

// The logical processors this process may run on.
[[nodiscard]] std::vector<int> usable_processors();

// Of this machine, read once.
[[nodiscard]] const CpuDescription& this_cpu();

}  // namespace headroom::device::internal
