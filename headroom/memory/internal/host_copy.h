// HostCopy: host memory for the bytes of a block that is away. Pinned where the device has such
// memory left, which is copied fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "headroom/device/device.h"

namespace headroom::memory::internal {

class HostCopy {
 public:
  HostCopy() = default;  // of nothing
  // Throws std::bad_alloc. The device outlives the copy.
  HostCopy(device::Device& device, std::uint64_t size_bytes) : device_(&device) {
    const auto pinned = device.allocate_pinned(size_bytes);
    if (pinned) {
      pinned_ = *pinned;
    } else {
      plain_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
    }
  }
  HostCopy(HostCopy&& other) noexcept
      : device_(other.device_),
        pinned_(std::exchange(other.pinned_, nullptr)),
        plain_(std::move(other.plain_)) {}
  HostCopy& operator=(HostCopy&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pinned_, other.pinned_);
    std::swap(plain_, other.plain_);
    return *this;
  }
  ~HostCopy() {
    if (pinned_ != nullptr) (void)device_->free_pinned(pinned_);
  }

  // Null where there is no copy.
  [[nodiscard]] void* data() const noexcept { return pinned_ != nullptr ? pinned_ : plain_.get(); }

 private:
  device::Device* device_ = nullptr;
  void* pinned_ = nullptr;
  std::unique_ptr<std::byte[]> plain_{};
};

}  // namespace headroom::memory::internal
