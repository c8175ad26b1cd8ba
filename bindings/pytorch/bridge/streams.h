// PyTorch's stream handles and our stream ids.
#pragma once

#include <array>
#include <cstddef>

#include "headroom/device/device.h"

#include "bindings/pytorch/bridge/values.h"

namespace headroom::bridge {

// What PyTorch calls the stream. The default one is 0 to it, whatever the driver calls it.
[[nodiscard]] inline NativeStream native_of(device::Device& device,
                                            device::StreamId stream) noexcept {
  if (stream == device::StreamId::kDefault) return 0;
  const auto native = device.native_stream(stream);
  return native ? static_cast<NativeStream>(*native) : static_cast<NativeStream>(stream);
}

// The ids of the streams that a thread uses, without a lock. Only streams that are never destroyed
// are kept: the handle of another may soon be that of a new stream.
class StreamCache {
 public:
  [[nodiscard]] static device::DeviceResult<device::StreamId> find(device::Device& device,
                                                                   NativeStream native,
                                                                   bool is_lasting) noexcept {
    if (native == 0) [[likely]] {
      return device::StreamId::kDefault;
    }
    Entry& entry = entry_of(&device, native);
    if (entry.device == &device && entry.native == native) [[likely]] {
      return entry.id;
    }
    const auto id = device.adopt_stream(
        native, is_lasting ? device::StreamLife::kUntilReleased : device::StreamLife::kUnknown);
    if (id && is_lasting) entry = {.device = &device, .native = native, .id = *id};
    return id;
  }

 private:
  struct Entry {
    const device::Device* device = nullptr;
    NativeStream native = 0;
    device::StreamId id = device::StreamId::kDefault;
  };
  static constexpr std::size_t kEntries = 16;  // a power of two

  static Entry& entry_of(const device::Device* device, NativeStream native) noexcept {
    thread_local std::array<Entry, kEntries> entries{};  // NOLINT(readability-identifier-naming)
    const std::uintptr_t mixed =
        (native ^ reinterpret_cast<std::uintptr_t>(device)) * 0x9E3779B97F4A7C15U;
    return entries[mixed >> 60U];
  }
};

}  // namespace headroom::bridge
