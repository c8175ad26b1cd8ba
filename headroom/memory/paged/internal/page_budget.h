// PageBudget: how many pages there may be, and of which sizes.
//
// Pages are created freely up to the end of the cushion, which lies a little above the most that
// was ever live; past it free pages are moved first, and only what is still missing is created, up
// to the limit.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/memory/paged/internal/cushion.h"
#include "headroom/memory/paged/internal/page_host.h"
#include "headroom/memory/paged/paged_options.h"

namespace headroom::memory::internal {

class PageBudget {
 public:
  PageBudget(const PagedOptions& options, double widest_cushion, const PageHost& host) noexcept;

  // --- For one request -------------------------------------------------------------------------

  // A request of this size looks for pages. Brings the peaks up to date.
  void begin_request(std::uint64_t size_bytes) noexcept;
  // It failed: it takes nothing, and a request that was never served is no peak.
  void forget_request(std::uint64_t peak_live_before) noexcept;
  // From now on the device is asked for pages again, although it may have had none before.
  void begin_asking() noexcept { device_is_short_ = false; }
  void set_device_is_short(bool is_short) noexcept { device_is_short_ = is_short; }
  [[nodiscard]] bool device_is_short() const noexcept { return device_is_short_; }

  // --- Bytes -----------------------------------------------------------------------------------

  // How many bytes more may be reserved once `released` bytes were given back: within the cushion,
  // or at all.
  [[nodiscard]] std::uint64_t room_in_cushion(std::uint64_t released) const noexcept;
  [[nodiscard]] std::uint64_t room_in_limit(std::uint64_t released) const noexcept;
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept {
    return host_.figures().reserved_bytes;
  }
  // The bytes up to which pages are created freely.
  [[nodiscard]] std::uint64_t cushion_end() const noexcept;
  // The most that may be reserved without a further reason: the end of the cushion or, if that is
  // more, the most bytes of pages in use that there ever were.
  [[nodiscard]] std::uint64_t allowed_bytes() const noexcept;
  // Created although pages were free, because these could not be moved just then.
  [[nodiscard]] std::uint64_t unsettled_bytes() const noexcept { return unsettled_; }
  // Pages were created or given back. `live_pages()` is asked only where reserved is past what is
  // allowed: past the cushion only as much as pages in use need is right.
  template <class LivePages>
  void settle(LivePages&& live_pages) {
    const std::uint64_t reserved = reserved_bytes();
    if (reserved <= allowed_bytes() + unsettled_) return;
    settle_at(reserved, live_pages());
  }

  [[nodiscard]] std::uint64_t peak_live() const noexcept { return peak_live_; }
  [[nodiscard]] std::uint64_t peak_needed() const noexcept { return peak_needed_; }
  [[nodiscard]] Cushion& cushion() noexcept { return cushion_; }

  // --- Sizes of pages --------------------------------------------------------------------------

  // Whether blocks should get halves of pages. `stuck_bytes` are the free bytes in whole pages that
  // hold something else too. Halves cost twice the calls. They pay where rounding to whole pages
  // wastes much: for a small block, where most blocks are small, where little is live, and where
  // many bytes are stuck.
  [[nodiscard]] bool wants_halves(std::uint64_t stuck_bytes) const noexcept;
  // Blocks of at least this size have an arena of their own.
  [[nodiscard]] std::uint64_t apart_from_bytes() const noexcept { return apart_from_bytes_; }
  [[nodiscard]] bool keeps_apart() const noexcept { return keeps_apart_; }
  // Called after a search, which found `stuck_bytes` free bytes in pages that hold something else.
  void decide_apart(std::uint64_t stuck_bytes) noexcept;

 private:
  [[nodiscard]] bool has_small_blocks() const noexcept;
  [[nodiscard]] bool is_little_live() const noexcept;
  void settle_at(std::uint64_t reserved, std::uint64_t live_pages) noexcept;

  const PagedOptions options_;
  const PageHost& host_;
  Cushion cushion_;
  std::uint64_t request_bytes_ = 0;  // of the request under way
  std::uint64_t peak_live_ = 0;      // as far as a request that looked for pages has seen it
  std::uint64_t peak_needed_ = 0;    // most bytes of pages that held something, likewise
  std::uint64_t unsettled_ = 0;
  std::uint64_t apart_from_bytes_;
  bool keeps_apart_ = false;
  bool device_is_short_ = false;
};

}  // namespace headroom::memory::internal
