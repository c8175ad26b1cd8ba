// What is held while events come: the entries that a recording needs to begin with, once what came
// before them is gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "headroom/trace/trace.h"

namespace headroom::trace::internal {

// Of one device.
class LiveEntries {
 public:
  void apply(std::span<const Entry> entries);
  // The allocations and the memory of the device that nobody gave back yet, in order.
  [[nodiscard]] std::vector<Entry> all() const;

 private:
  struct Numbered {
    Entry entry{};
    std::uint64_t number = 0;
  };
  struct Block {
    Numbered taken{};
    std::optional<Numbered> freed{};  // asked for, and another stream still uses it
  };

  void apply(const Entry& entry);
  void cut(DeviceAddress first, DeviceAddress last);

  std::uint64_t next_ = 0;
  std::unordered_map<DeviceAddress, Block> blocks_;
  std::map<DeviceAddress, Numbered> segments_;  // by address; they do not overlap
};

}  // namespace headroom::trace::internal
