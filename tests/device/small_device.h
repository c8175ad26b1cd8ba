// A device of 16 MiB with pages of 64 KiB, as most tests of the cpu use it.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"

namespace headroom::device {

inline constexpr std::uint64_t kCapacity = 16_MiB;
inline constexpr std::uint64_t kPage = 64_KiB;
inline constexpr StreamId kDefault = StreamId::kDefault;

inline std::unique_ptr<CpuDevice> small_device(std::uint64_t capacity_bytes = kCapacity) {
  return CpuDevice::create({.capacity_bytes = capacity_bytes, .granularity_bytes = kPage});
}

}  // namespace headroom::device
