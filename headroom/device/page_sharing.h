// PageSharing: pages that other processes map too, and other GPUs. A device that can has one
// (Device::sharing), and it lives as long as the device.
#pragma once

#include <cstdint>

#include "headroom/device/types.h"

namespace headroom::device {

// noexcept as a device's own calls are, and from any thread. In the child of a fork every call
// answers kForked.
class PageSharing {
 public:
  PageSharing() = default;
  PageSharing(const PageSharing&) = delete;
  PageSharing& operator=(const PageSharing&) = delete;
  virtual ~PageSharing() = default;

  // A file descriptor that stands for pages that were created exportable. It is the caller's, to be
  // sent to another process and closed.
  virtual DeviceResult<int> export_pages(PageHandle handle) noexcept = 0;
  // The pages that a descriptor of another process stands for, of the size they were created with.
  // Their bytes are the other process's too. The descriptor stays the caller's.
  virtual DeviceResult<PageHandle> import_pages(int descriptor,
                                                std::uint64_t size_bytes) noexcept = 0;
  // Lets another GPU read and write what is mapped on this device, now and from now on.
  virtual DeviceResult<void> allow_peer(int index) noexcept = 0;
};

}  // namespace headroom::device
