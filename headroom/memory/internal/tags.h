// The tags of an allocator: what a program remembers of blocks and segments. Beside the blocks, so
// that programs without tags pay nothing. Every function requires the allocator's lock, but for
// those that say otherwise.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "headroom/memory/allocator.h"
#include "headroom/memory/event.h"

namespace headroom::memory::internal {

class Tags {
 public:
  explicit Tags(TagMaker maker) : maker_(std::make_shared<const TagMaker>(std::move(maker))) {}

  // To be called without the lock.
  [[nodiscard]] std::shared_ptr<const TagMaker> maker() const noexcept { return maker_; }

  // The tag that an event carries; `current` is that of the request under way. An allocation keeps
  // it, what goes lets go of it once told().
  [[nodiscard]] const Tag* begin(Action action,
                                 DeviceAddress address,
                                 const Tag* current) noexcept {
    switch (action) {
      case Action::kAlloc:
        return keep(blocks_, address, current);
      case Action::kSegmentAlloc:
      case Action::kSegmentMap:
        return keep(segments_, address, current);
      case Action::kFreeRequested:
      case Action::kFreeCompleted:
        return find(blocks_, address);
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        return find(segments_, address);
      default:
        return current;
    }
  }
  void told(Action action, DeviceAddress address, std::uint64_t size_bytes) noexcept {
    if (action == Action::kFreeCompleted) blocks_.erase(address);
    if (action == Action::kSegmentFree || action == Action::kSegmentUnmap) {
      segments_.erase(segments_.lower_bound(address), segments_.lower_bound(address + size_bytes));
    }
  }

  [[nodiscard]] Tag of_block(DeviceAddress address) const { return copy(find(blocks_, address)); }
  [[nodiscard]] Tag of_segment(DeviceAddress address) const {
    return copy(find(segments_, address));
  }

 private:
  [[nodiscard]] static Tag copy(const Tag* tag) { return tag != nullptr ? *tag : Tag{}; }

  template <class Map>
  [[nodiscard]] static const Tag* find(const Map& map, DeviceAddress address) noexcept {
    const auto found = map.find(address);
    return found != map.end() ? &found->second : nullptr;
  }

  template <class Map>
  [[nodiscard]] static const Tag* keep(Map& map, DeviceAddress address, const Tag* tag) noexcept {
    if (tag == nullptr || *tag == nullptr) return nullptr;
    try {
      return &(map[address] = *tag);
    } catch (...) {  // No host memory: the event has it, a snapshot will not.
      return tag;
    }
  }

  std::shared_ptr<const TagMaker> maker_;
  std::unordered_map<DeviceAddress, Tag> blocks_{};
  std::map<DeviceAddress, Tag> segments_{};
};

}  // namespace headroom::memory::internal
