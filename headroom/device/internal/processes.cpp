#include "headroom/device/internal/processes.h"

#include <algorithm>

#include "headroom/base/bytes.h"

namespace headroom::device::internal {
namespace {

// The most that the driver's rounding may add up to; a context takes more.
constexpr std::uint64_t kLeastProcess = 256_MiB;

// Processes that the system does not know by their numbers are counted elsewhere: this one may be
// among them under another number.
void forget_strangers(std::vector<ProcessMemory>& listed) {
  std::erase_if(listed, [](const ProcessMemory& process) { return process.name.empty(); });
}

}  // namespace

std::vector<ProcessMemory> complete_processes(std::vector<ProcessMemory> listed,
                                              const OwnUse& own,
                                              std::uint64_t used_bytes) {
  auto self = std::ranges::find_if(listed, &ProcessMemory::is_self);
  const bool is_told = self != listed.end() && self->used_bytes > 0;
  if (self == listed.end()) {
    forget_strangers(listed);
    self = listed.insert(
        listed.end(), {.pid = own.pid, .used_bytes = 0, .name = "this process", .is_self = true});
  }
  self->used_bytes = std::max(self->used_bytes, own.bytes);
  if (!is_told && !own.is_all) return listed;  // what is missing may be ours

  std::uint64_t missing = used_bytes;
  for (const ProcessMemory& process : listed) missing -= std::min(missing, process.used_bytes);
  if (missing >= kLeastProcess) {
    listed.push_back({.used_bytes = missing, .name = "processes that are not shown"});
  }
  return listed;
}

}  // namespace headroom::device::internal
