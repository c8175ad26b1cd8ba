// Blocks on their way from one thread to another.
#pragma once

#include <mutex>
#include <vector>

#include "headroom/memory/types.h"

namespace headroom::memory::testing {

class Mailbox {
 public:
  void put(DeviceAddress block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(block);
  }
  // 0 where there is none.
  DeviceAddress take() {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return 0;
    const DeviceAddress block = blocks_.back();
    blocks_.pop_back();
    return block;
  }

 private:
  std::mutex mutex_;
  std::vector<DeviceAddress> blocks_;
};

}  // namespace headroom::memory::testing
