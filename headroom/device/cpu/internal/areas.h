// Address ranges of our own making: anonymous memory for segments, bare addresses for
// reservations. None of them is inherited by a fork.
#pragma once

#include <cstdint>

#include "headroom/device/types.h"

namespace headroom::device::internal {

[[nodiscard]] std::uint64_t system_page_bytes() noexcept;

[[nodiscard]] inline void* to_pointer(DeviceAddress address) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers in the contract.
  return reinterpret_cast<void*>(address);
}
[[nodiscard]] inline DeviceAddress to_address(const void* pointer) noexcept {
  return reinterpret_cast<DeviceAddress>(pointer);
}

enum class AreaUse : std::uint8_t {
  kMemory,     // readable, writable, zero
  kAddresses,  // touching it is a fault
};

// A range of at least `size_bytes`, its start a multiple of `alignment_bytes` (a power of two).
// The memory may be promised without being there: the ledger and the room check keep count.
[[nodiscard]] DeviceResult<DeviceAddress> make_area(AreaUse use,
                                                    std::uint64_t size_bytes,
                                                    std::uint64_t alignment_bytes);
void drop_area(AreaUse use, DeviceAddress address, std::uint64_t size_bytes) noexcept;

// Puts bare addresses over what is mapped in a reservation; an errno, 0 when done.
[[nodiscard]] int clear_mappings(DeviceAddress address, std::uint64_t size_bytes) noexcept;

}  // namespace headroom::device::internal
