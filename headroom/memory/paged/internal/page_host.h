// PageHost: the allocator, as its pages see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct PageArena;

// The allocator's numbers that decide how many pages there may be.
struct HostFigures {
  std::uint64_t reserved_bytes = 0;
  std::uint64_t limit_bytes = UINT64_MAX;  // UINT64_MAX where no limit is set
  std::uint64_t live_bytes = 0;
  std::uint64_t peak_live_bytes = 0;
  std::size_t blocks = 0;  // in use, without those in slabs
};

class PageHost {
 public:
  PageHost() = default;
  PageHost(const PageHost&) = delete;
  PageHost& operator=(const PageHost&) = delete;

  [[nodiscard]] virtual HostFigures figures() const noexcept = 0;

  // Physical memory came or went.
  virtual void page_created(std::uint64_t size_bytes) noexcept = 0;
  virtual void page_released(std::uint64_t size_bytes) noexcept = 0;
  // These addresses are the home of pages from now on, or no longer.
  virtual void pages_arrived(const PageArena& arena,
                             DeviceAddress at,
                             std::uint64_t size) noexcept = 0;
  virtual void pages_left(const PageArena& arena,
                          DeviceAddress at,
                          std::uint64_t size) noexcept = 0;

 protected:
  ~PageHost() = default;
};

}  // namespace headroom::memory::internal
