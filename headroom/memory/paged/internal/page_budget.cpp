#include "headroom/memory/paged/internal/page_budget.h"

#include <algorithm>

#include "headroom/base/checked.h"

namespace headroom::memory::internal {

PageBudget::PageBudget(const PagedOptions& options,
                       double widest_cushion,
                       const PageHost& host) noexcept
    : options_(options),
      host_(host),
      cushion_(options.cushion_fraction, widest_cushion),
      apart_from_bytes_(options.large_from_bytes) {}

void PageBudget::begin_request(std::uint64_t size_bytes) noexcept {
  const HostFigures now = host_.figures();
  peak_live_ = std::max({peak_live_, now.peak_live_bytes, now.live_bytes + size_bytes});
  request_bytes_ = size_bytes;
}

void PageBudget::forget_request(std::uint64_t peak_live_before) noexcept {
  peak_live_ = std::max(peak_live_before, host_.figures().peak_live_bytes);
}

std::uint64_t PageBudget::cushion_end() const noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(peak_live_) * (1.0 + cushion_.fraction())) +
         options_.cushion_bytes;
}

std::uint64_t PageBudget::room_in_cushion(std::uint64_t released) const noexcept {
  const std::uint64_t reserved = saturating_subtract(reserved_bytes(), released);
  return std::min(room_in_limit(released), saturating_subtract(cushion_end(), reserved));
}

std::uint64_t PageBudget::room_in_limit(std::uint64_t released) const noexcept {
  const HostFigures now = host_.figures();
  if (now.limit_bytes == UINT64_MAX) return UINT64_MAX;
  return saturating_subtract(now.limit_bytes, saturating_subtract(now.reserved_bytes, released));
}

std::uint64_t PageBudget::allowed_bytes() const noexcept {
  return std::max(cushion_end(), peak_needed_);
}

void PageBudget::settle_at(std::uint64_t reserved, std::uint64_t live_pages) noexcept {
  peak_needed_ = std::max(peak_needed_, live_pages);
  unsettled_ = saturating_subtract(reserved, allowed_bytes());
}

// Of blocks that are no larger than a few pages on average, the one that is searched for included,
// the ends add up.
bool PageBudget::has_small_blocks() const noexcept {
  constexpr std::uint64_t kPagesOnAverage = 3;
  const HostFigures now = host_.figures();
  return (now.live_bytes + request_bytes_) / (now.blocks + 1) <
         kPagesOnAverage * options_.page_bytes;
}

bool PageBudget::is_little_live() const noexcept {
  constexpr std::uint64_t kPages = 128;
  return peak_live_ / kPages < options_.page_bytes;
}

bool PageBudget::wants_halves(std::uint64_t stuck_bytes) const noexcept {
  constexpr std::uint64_t kPagesOfBlock = 8;
  constexpr double kStuckShare = 0.012;
  return request_bytes_ / kPagesOfBlock < options_.page_bytes || is_little_live() ||
         has_small_blocks() ||
         static_cast<double>(stuck_bytes) > kStuckShare * static_cast<double>(peak_live_);
}

// Large blocks that come and go among small ones that stay leave these behind one by one, each
// alone in the pages at its ends. So where the free bytes that are stuck in such pages show, and
// until they are half of that, large blocks have an arena of their own.
void PageBudget::decide_apart(std::uint64_t stuck_bytes) noexcept {
  constexpr std::uint64_t kPagesOfLarge = 4;
  constexpr std::uint64_t kStuckPart = 100;
  const std::uint64_t much = peak_live_ / kStuckPart;
  const bool should_begin = !is_little_live() && has_small_blocks() && stuck_bytes > much;
  keeps_apart_ = should_begin || (keeps_apart_ && stuck_bytes > much / 2);
  const std::uint64_t from = keeps_apart_ ? kPagesOfLarge * options_.page_bytes : UINT64_MAX;
  apart_from_bytes_ = std::min(options_.large_from_bytes, from);
}

}  // namespace headroom::memory::internal
