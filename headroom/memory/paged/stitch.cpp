// When no hole that is backed is large enough: which pages to create or move, rung by rung, the
// cheapest first.
#include <algorithm>

#include "headroom/memory/internal/paged_state.h"

namespace headroom::memory {

using internal::Backed;
using internal::Backing;
using internal::PagedState;
using internal::PageSupply;
using internal::PageWindow;

namespace {

// How many holes of the other arena are looked at for one that is as good as can be.
constexpr int kOverflowLooks = 64;

// Stale mappings that are kept at most; past it they are unmapped, as far as nobody uses them.
constexpr std::uint64_t kMostStale = 32'768;

}  // namespace

namespace internal {

bool is_shortage(const device::DeviceStatus& status) noexcept {
  using device::StatusCode;
  return status == StatusCode::kOutOfMemory || status == StatusCode::kOutOfAddressSpace ||
         status == StatusCode::kTooManyMappings || status == StatusCode::kOutOfHostMemory;
}

}  // namespace internal

// What the bound is made of is known best while the pages are being looked at.
void PagedAllocator::note_search(std::uint64_t rounded) {
  PagedState& s = *state_;
  const auto live = static_cast<std::uint64_t>(stats_.live_bytes.current);
  const auto peak = static_cast<std::uint64_t>(stats_.live_bytes.peak);
  s.peak_live = std::max({s.peak_live, peak, live + rounded});
  s.searched_bytes = rounded;
  s.last_growth = std::chrono::steady_clock::now();
}

// A request that failed takes nothing, and what never lived is no peak.
void PagedAllocator::note_failure(std::uint64_t peak_before) {
  PagedState& s = *state_;
  s.store.release_loose();
  s.peak_live = std::max(peak_before, static_cast<std::uint64_t>(stats_.live_bytes.peak));
  note_growth();
}

// Past the cushion only what pages in use need is right; the rest is what could not be moved.
void PagedAllocator::note_growth() {
  PagedState& s = *state_;
  const std::uint64_t reserved = reserved_bytes();
  if (reserved <= std::max(s.cushion_end(), s.peak_needed) + s.unsettled) return;
  s.peak_needed = std::max(s.peak_needed, live_pages_bytes());
  const std::uint64_t allowed = std::max(s.cushion_end(), s.peak_needed);
  s.unsettled = reserved > allowed ? reserved - allowed : 0;
}

PagedAllocator::Place PagedAllocator::stitch(const Request& request) {
  // Slabs must not be emptied while they ask for a page.
  if (request.kind != internal::ArenaKind::kSlab) trim_when_idle();
  note_search(request.rounded);
  state_->store.begin_request();
  Place found = stitch_within(request, /*in_cushion=*/true);
  if (found.is_found() || found.has_failed) return found;
  return stitch_within(request, /*in_cushion=*/false);
}

device::DeviceResult<PagedAllocator::PageArena*> PagedAllocator::arena_for(
    StreamId stream, internal::ArenaKind kind) {
  PagedState& s = *state_;
  PageArena*& arena = s.arenas_of(stream).of(kind);
  if (arena != nullptr) return arena;
  const auto made = s.store.arena_of(stream, kind);
  if (!made) return made;
  arena = *made;
  if (kind == internal::ArenaKind::kSlab && !s.slabs.has_region()) {
    const auto region = s.store.slab_region();
    s.slabs.set_region(region.base, region.size);
  }
  return arena;
}

PagedAllocator::Place PagedAllocator::stitch_within(const Request& request, bool in_cushion) {
  PagedState& s = *state_;
  using internal::ArenaKind;
  const auto own_arena = arena_for(request.stream, request.kind);
  if (!own_arena) {
    return {.status = own_arena.error(), .has_failed = !internal::is_shortage(own_arena.error())};
  }
  PageArena& own = **own_arena;
  // Where blocks may go that find no room in their own arena; slabs keep to theirs.
  PageArena* other = nullptr;
  if (request.kind != ArenaKind::kSlab) {
    other = s.arenas_of(request.stream)
                .of(request.kind == ArenaKind::kLarge ? ArenaKind::kNormal : ArenaKind::kLarge);
  }
  if (s.store.stale_slots() > kMostStale) s.store.retire(kMostStale / 2);
  s.store.begin_search();

  std::optional<PageWindow> own_window;  // as of one search, for several attempts
  std::uint64_t own_window_of = 0;
  Place failed;
  std::uint64_t missing = 0;
  const auto attempt = [&](PageArena& arena, PageSupply supply) -> Place {
    const bool is_known = &arena == &own && own_window_of == s.store.search_number();
    const auto window = is_known ? own_window : s.store.best_window(arena, request.rounded);
    if (&arena == &own) {
      own_window = window;
      own_window_of = s.store.search_number();
    }
    if (!window) return {};
    supply.creates_in_cushion = true;
    supply.creates = !in_cushion;
    const Backed backed = s.store.back(arena, *window, supply);
    missing = backed.missing_bytes;
    if (backed.outcome == Backing::kDone) return {.block = backed.block, .at = window->begin};
    if (backed.outcome == Backing::kDeviceFailed && !internal::is_shortage(backed.status)) {
      failed = {.status = backed.status, .has_failed = true};
    }
    if (backed.outcome == Backing::kDeviceFailed) s.store.begin_search();
    return {};
  };

  constexpr PageSupply kCreate{};
  constexpr PageSupply kOwn{.moves_own = true};
  constexpr PageSupply kAll{.moves_own = true, .moves_others = true};
  constexpr PageSupply kAny{.moves_own = true, .moves_others = true, .breaks_large = true};
  // Past the cushion, pages are created only for what moving leaves open.
  Place found;
  if (in_cushion) found = attempt(own, kCreate);
  // Where halves are wanted, free whole pages become halves.
  if (!found.is_found() && in_cushion && s.store.wants_halves() &&
      s.store.make_room(own, missing, /*in_cushion=*/true)) {
    found = attempt(own, kCreate);
  }
  if (!found.is_found()) found = overflow(request, other, /*may_waste=*/false);
  if (!found.is_found() && in_cushion) found = attempt(own, kOwn);
  if (!found.is_found()) found = attempt(own, in_cushion ? kAll : kAny);
  if (!found.is_found() && missing > 0 && s.store.make_room(own, missing, in_cushion)) {
    found = attempt(own, kAll);
  }
  if (!found.is_found()) {
    s.store.begin_search();
    found = attempt(own, kAny);
  }
  if (!found.is_found()) found = overflow(request, other, /*may_waste=*/true);
  if (!found.is_found() && other != nullptr) found = attempt(*other, kAny);
  return found.is_found() ? found : failed;
}

// A hole of the other arena. A small block in a large page keeps it from moving, so at first only
// where that page holds something already.
PagedAllocator::Place PagedAllocator::overflow(const Request& request,
                                               PageArena* other,
                                               bool may_waste) {
  if (other == nullptr) return {};
  Place best;
  std::uint64_t least = may_waste || other->kind == internal::ArenaKind::kNormal ? UINT64_MAX : 0;
  int looks = 0;
  other->free->for_each_from(request.rounded, [&](Block& block) {
    const DeviceAddress end = block.address + block.size;
    for (const DeviceAddress begin : {block.address, end - request.rounded}) {
      const std::uint64_t touched =
          internal::PageStore::bytes_touched(block, begin, begin + request.rounded);
      if (touched > least || (touched == least && best.is_found())) continue;
      least = touched;
      best = {.block = &block, .at = begin};
    }
    return ++looks < kOverflowLooks;
  });
  return best;
}

}  // namespace headroom::memory
