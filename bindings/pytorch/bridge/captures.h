// CaptureWatch: when a graph is being captured into a private pool.
//
// PyTorch opens a pool before it begins a capture, and opens pools without one too (MemPool, the
// warm-up of graph trees), in one and the same call. So while a pool is open, whoever comes by asks
// the driver about the stream that was current when it was opened.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "headroom/memory/allocator.h"

namespace headroom::bridge {

class CaptureWatch {
 public:
  explicit CaptureWatch(memory::Allocator& allocator) noexcept : allocator_(allocator) {}
  CaptureWatch(const CaptureWatch&) = delete;
  CaptureWatch& operator=(const CaptureWatch&) = delete;

  void opened(memory::PoolId pool, device::StreamId stream);
  void closed(memory::PoolId pool);

  // Before everything that may wait, look at an event or give memory back. Costs a branch while no
  // pool is open.
  void look() noexcept {
    if (open_.load(std::memory_order_acquire) != 0) [[unlikely]] {
      look_at_each();
    }
  }

 private:
  struct Open {
    memory::PoolId pool{};
    device::StreamId stream = device::StreamId::kDefault;
    bool is_capturing = false;
  };
  void look_at_each() noexcept;
  void set_capturing(Open& scope, bool is_capturing) noexcept;  // requires mutex_

  memory::Allocator& allocator_;
  std::atomic<int> open_{0};
  std::mutex mutex_;
  std::vector<Open> scopes_;
};

}  // namespace headroom::bridge
