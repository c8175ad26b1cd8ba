// What a PageStore and its allocator say to one another.
#pragma once

#include <cstdint>

#include "headroom/device/types.h"
#include "headroom/memory/internal/page_table.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

// What the store asks of the allocator, and tells it.
class PageHost {
 public:
  PageHost() = default;
  PageHost(const PageHost&) = delete;
  PageHost& operator=(const PageHost&) = delete;

  // How many bytes more may be reserved once so many were given back: within the cushion, or at
  // all.
  [[nodiscard]] virtual std::uint64_t room_in_cushion(std::uint64_t released) const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t room_in_limit(std::uint64_t released) const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t reserved_bytes() const noexcept = 0;
  // Whether blocks should get halves of pages: so many free bytes lie in pages that hold something.
  [[nodiscard]] virtual bool wants_halves(std::uint64_t stuck_bytes) const noexcept = 0;
  // Physical memory came or went.
  virtual void page_created(std::uint64_t size_bytes) noexcept = 0;
  virtual void page_released(std::uint64_t size_bytes) noexcept = 0;
  // Pages are at home at these addresses now, or no more.
  virtual void pages_arrived(const PageArena& arena,
                             DeviceAddress at,
                             std::uint64_t size) noexcept = 0;
  virtual void pages_left(const PageArena& arena,
                          DeviceAddress at,
                          std::uint64_t size) noexcept = 0;

 protected:
  ~PageHost() = default;
};

struct PageWindow {
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
  // The run of addresses without a held block that it lies in.
  DeviceAddress run_begin = 0;
  DeviceAddress run_end = 0;
};

// Where missing pages may come from, in this order.
struct PageSupply {
  bool creates_in_cushion = false;
  bool moves_own = false;     // free pages of the same stream
  bool moves_others = false;  // of other streams, behind an event
  bool creates = false;       // up to the limit
  bool breaks_large = false;  // larger pages where smaller ones are wanted
  bool wants_large = true;    // in the arena of large blocks
};

enum class Backing : std::uint8_t { kDone, kTooFew, kDeviceFailed };

struct Backed {
  Backing outcome = Backing::kTooFew;
  Block* block = nullptr;  // free, backed, and around the window
  device::DeviceStatus status{};
  std::uint64_t missing_bytes = 0;  // where there were too few
};

}  // namespace headroom::memory::internal
