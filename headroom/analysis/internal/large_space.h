// How large the blocks of large, not expandable segments really are: the recording has the sizes
// asked for, and an allocator leaves a short rest inside the block rather than cut it off.
#pragma once

#include <cstdint>
#include <map>

#include "headroom/analysis/types.h"
#include "headroom/memory/config.h"

namespace headroom::analysis::internal {

// The size that PyTorch's rounding makes of a request, and what happens to the rest.
class BlockRule {
 public:
  explicit BlockRule(memory::AllocatorConfig config) : config_(std::move(config)) {}

  [[nodiscard]] std::uint64_t rounded(std::uint64_t requested) const noexcept {
    return memory::rounded_size(requested, config_);
  }
  // Whether the block may be larger than its rounded request.
  [[nodiscard]] bool may_have_tail(std::uint64_t rounded_bytes) const noexcept {
    return rounded_bytes > memory::kSmallBytes && !config_.expandable_segments;
  }
  // Of a block with `room` bytes up to the next live block or the end of its segment.
  [[nodiscard]] std::uint64_t size_in(std::uint64_t room,
                                      std::uint64_t rounded_bytes) const noexcept {
    if (room < rounded_bytes) return rounded_bytes;
    const bool is_split =
        rounded_bytes < config_.max_split_bytes && room - rounded_bytes > memory::kSmallBytes;
    return is_split ? rounded_bytes : room;
  }
  [[nodiscard]] const memory::AllocatorConfig& config() const noexcept { return config_; }

 private:
  memory::AllocatorConfig config_;
};

// The live blocks of such segments by address. Everything else is left out.
class LargeSpace {
 public:
  struct Extent {
    std::uint64_t rounded = 0;
    std::uint64_t size = 0;
    std::uint32_t owner = 0;  // the caller's number for the block
  };
  using Blocks = std::map<DeviceAddress, Extent>;

  explicit LargeSpace(const BlockRule& rule) : rule_(rule) {}

  void add_segment(DeviceAddress address, std::uint64_t size) { segments_[address] = size; }
  void remove_segment(DeviceAddress address) { segments_.erase(address); }

  // Returns the entry with its size, or the end where the address is in no segment we follow.
  Blocks::iterator insert(DeviceAddress address, std::uint64_t rounded, std::uint32_t owner);
  // One whose size is known.
  void insert_known(DeviceAddress address, const Extent& extent);
  void erase(DeviceAddress address) { blocks_.erase(address); }

  // Makes the block's size again, now that something stands behind it.
  void settle(Blocks::iterator block);

  [[nodiscard]] Blocks& blocks() noexcept { return blocks_; }

 private:
  using Segments = std::map<DeviceAddress, std::uint64_t>;
  [[nodiscard]] Segments::const_iterator segment_of(DeviceAddress address) const;

  const BlockRule& rule_;
  Segments segments_;
  Blocks blocks_;
};

}  // namespace headroom::analysis::internal
