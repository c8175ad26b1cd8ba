// The least that a program can take under a setting: its live blocks, as the setting rounds them.
//
// One pass over numbers instead of a replay, and one for all settings that round alike.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "headroom/memory/config.h"
#include "headroom/replay/program.h"

namespace headroom::replay::internal {

class LiveFloor {
 public:
  explicit LiveFloor(const Program& program);

  // 0 where a state before the first event makes it uncertain.
  [[nodiscard]] std::uint64_t bytes_under(const memory::AllocatorConfig& config);

 private:
  using Divisions = decltype(memory::AllocatorConfig::roundup_power2_divisions);

  // A block that is allocated or freed.
  struct LiveChange {
    std::uint32_t size = 0;  // in sizes_
    bool is_free = false;
  };

  [[nodiscard]] std::uint64_t peak_of(const std::vector<std::uint64_t>& rounded) const;

  std::vector<std::uint64_t> sizes_{};
  std::vector<LiveChange> changes_{};
  std::mutex mutex_{};
  std::map<Divisions, std::uint64_t> known_{};  // under mutex_
};

}  // namespace headroom::replay::internal
