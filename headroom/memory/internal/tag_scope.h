// TagScope: the tag of the request under way.
#pragma once

#include "headroom/memory/core.h"

namespace headroom::memory {

// Made before mutex_ is taken, by everything that may take memory from the device: who makes a tag
// may need locks of its own. Gone when the scope ends.
class AllocatorCore::TagScope {
 public:
  explicit TagScope(AllocatorCore& core) {
    if (core.makes_tags_.load(std::memory_order_relaxed)) [[unlikely]] {
      begin(core);
    }
  }
  // The tag that an earlier allocation had.
  TagScope(AllocatorCore& core, Tag tag) noexcept;
  ~TagScope() {
    if (core_ != nullptr) [[unlikely]] {
      end();
    }
  }
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;

 private:
  friend class AllocatorCore;
  void begin(AllocatorCore& core);
  void end() noexcept;

  const AllocatorCore* core_ = nullptr;  // null: none is made
  TagScope* outer_ = nullptr;
  Tag tag_{};
};

}  // namespace headroom::memory
