// KnownStreams: the streams that an allocator has met, so that its device is asked once for each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <unordered_set>

#include "headroom/device/device.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

class KnownStreams {
 public:
  // The device's error where it does not know the stream. What has been met stays known, also after
  // its release: blocks go on naming it.
  [[nodiscard]] device::DeviceResult<void> check(device::Device& device, StreamId stream) {
    if (met_.contains(stream) || trusted_.contains(stream)) return {};
    if (const auto known = device.is_capturing(stream); !known) return Unexpected(known.error());
    if (met_.size() >= forget_at_) forget_gone(device);
    met_.insert(stream);
    return {};
  }
  // Without asking: the stream is somebody else's.
  void trust(StreamId stream) { trusted_.insert(stream); }
  // The stream was released.
  [[nodiscard]] bool is_gone(device::Device& device, StreamId stream) const noexcept {
    if (stream == StreamId::kDefault || trusted_.contains(stream)) return false;
    const auto native = device.native_stream(stream);
    return !native && native.error() == device::StatusCode::kUnknownHandle;
  }

 private:
  static constexpr std::size_t kLeast = 1024;

  void forget_gone(device::Device& device) {
    std::erase_if(met_, [&](StreamId stream) { return is_gone(device, stream); });
    forget_at_ = std::max(kLeast, 2 * met_.size());
  }

  std::unordered_set<StreamId> met_{StreamId::kDefault};
  std::unordered_set<StreamId> trusted_{};
  std::size_t forget_at_ = kLeast;
};

}  // namespace headroom::memory::internal
