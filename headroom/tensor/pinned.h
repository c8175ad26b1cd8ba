// Host memory that a device copies from fastest, and copies from it that run beside other work.
//
//   PinnedBuffer host(device, bytes);
//   ... fill host.data() ...
//   {
//     const StreamScope scope(copies);
//     copy_from_pinned(x, host.data());        // queued; the buffer stays until the stream passed
//   }
//   current_stream(device).wait(copies);
#pragma once

#include <cstdint>

#include "headroom/device/device.h"
#include "headroom/tensor/tensor.h"

namespace headroom {

class PinnedBuffer {
 public:
  // Throws Error when the device gives none.
  PinnedBuffer(device::Device& device, std::uint64_t size_bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&&) = delete;

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  device::Device* device_;
  std::uint64_t size_bytes_;
  void* data_;
};

// Queues a copy of all elements of `to`, which is contiguous, from host memory on the current
// stream of its device. A recording shows when it ran, as a span of "copy to device". Nothing on
// meta.
void copy_from_pinned(const Tensor& to, const void* from);

}  // namespace headroom
