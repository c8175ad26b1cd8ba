// Room: a promise of physical memory, kept within what the machine has.
//
// A device's capacity bounds what it gives out, but other programs use the machine too, and
// memory that is given out and not yet touched is not there yet. So each promise is also weighed
// against what the machine has left, and refused while the kernel's own killer is still far away.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "headroom/device/cpu/internal/machine.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

enum class RoomUse : std::uint8_t { kSegment, kPages };

// Gives the promise back when it goes out of scope, unless it was kept.
class [[nodiscard]] Room {
 public:
  Room(RoomUse use, std::uint64_t size_bytes) noexcept : use_(use), size_bytes_(size_bytes) {}
  Room(Room&& other) noexcept
      : use_(other.use_), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Room& operator=(Room&&) = delete;
  ~Room();

  void keep() noexcept { size_bytes_ = 0; }

 private:
  RoomUse use_;
  std::uint64_t size_bytes_;
};

// kOutOfMemory when the machine would be left with less than a margin.
[[nodiscard]] DeviceResult<Room> promise_room(RoomUse use, std::uint64_t size_bytes);
// Ends a promise that was kept.
void return_room(RoomUse use, std::uint64_t size_bytes) noexcept;

// The part of the machine's memory that is never used: one part in 16, at most 1 GiB.
[[nodiscard]] std::uint64_t room_margin_bytes(std::uint64_t machine_bytes) noexcept;

// The memory that the machine could still give: available memory less what is promised and not yet
// there, less the margin.
[[nodiscard]] std::uint64_t spare_bytes(const MachineMemory& memory,
                                        std::uint64_t untouched_bytes) noexcept;

}  // namespace headroom::device::internal
