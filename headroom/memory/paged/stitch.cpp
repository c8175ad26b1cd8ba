// When no hole that is backed is large enough: which pages to create or move, rung by rung, the
// cheapest first.
#include <algorithm>

#include "headroom/memory/internal/paged_state.h"
#include "headroom/memory/internal/shortage.h"

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

// What the bound is made of is known best while the pages are being looked at.
void PagedAllocator::note_search(std::uint64_t rounded) {
  PagedState& s = *state_;
  const auto live = static_cast<std::uint64_t>(stats_.live_bytes.current);
  const auto peak = static_cast<std::uint64_t>(stats_.live_bytes.peak);
  s.peak_live = std::max({s.peak_live, peak, live + rounded});
  s.searched_bytes = rounded;
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
  PagedState& s = *state_;
  s.store.begin_request();
  const std::uint64_t reserved_before = reserved_bytes();
  s.last_growth = device_.now();
  Place found = stitch_within(request, /*in_cushion=*/true);
  if (!found.is_found() && !found.has_failed) found = stitch_within(request, /*in_cushion=*/false);
  s.note_stuck();
  // Under a limit pages are placed the same way each time, however long it takes: a plan holds.
  const bool has_grown = reserved_bytes() > reserved_before;
  if (!has_grown && !limit_is_set()) s.cushion.note_moves(s.last_growth, device_.now());
  return found;
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

// One request, and where its pages may come from: within the cushion, or past it.
class PagedAllocator::Stitcher {
 public:
  Stitcher(PagedAllocator& allocator, const Request& request, PageArena& own, bool in_cushion)
      : allocator_(allocator),
        store_(allocator.state_->store),
        request_(request),
        own_(own),
        in_cushion_(in_cushion),
        wants_large_(request.kind != internal::ArenaKind::kLarge ||
                     allocator.is_worth_large_pages(request.rounded)) {
    using internal::ArenaKind;
    // Where blocks may go that find no room in their own arena; slabs keep to theirs.
    if (request.kind == ArenaKind::kSlab) return;
    other_ = allocator.state_->arenas_of(request.stream)
                 .of(request.kind == ArenaKind::kLarge ? ArenaKind::kNormal : ArenaKind::kLarge);
  }

  // The rungs. Past the cushion, pages are created only for what moving leaves open.
  Place run() {
    constexpr PageSupply kOwn{.moves_own = true};
    constexpr PageSupply kAll{.moves_own = true, .moves_others = true};
    constexpr PageSupply kAny{.moves_own = true, .moves_others = true, .breaks_large = true};
    store_.begin_search();
    Place found;
    if (in_cushion_) found = create();
    if (!found.is_found()) found = allocator_.overflow(request_, other_, /*may_waste=*/false);
    if (!found.is_found() && in_cushion_) found = attempt(own_, kOwn);
    if (!found.is_found()) found = attempt(own_, in_cushion_ ? kAll : kAny);
    if (!found.is_found() && missing_ > 0 && store_.make_room(own_, missing_, in_cushion_)) {
      found = attempt(own_, kAll);
    }
    if (!found.is_found()) {
      store_.begin_search();
      found = attempt(own_, kAny);
    }
    if (!found.is_found()) found = allocator_.overflow(request_, other_, /*may_waste=*/true);
    if (!found.is_found() && other_ != nullptr) found = attempt(*other_, kAny);
    return found.is_found() ? found : failed_;
  }

 private:
  // Within the cushion. Where halves are wanted, free whole pages become halves.
  Place create() {
    constexpr PageSupply kCreate{};
    const Place found = attempt(own_, kCreate);
    if (found.is_found() || !store_.wants_halves()) return found;
    if (!store_.make_room(own_, missing_, /*in_cushion=*/true)) return found;
    return attempt(own_, kCreate);
  }

  Place attempt(PageArena& arena, PageSupply supply) {
    const std::optional<PageWindow> window = window_in(arena);
    if (!window) return {};
    supply.creates_in_cushion = true;
    supply.creates = !in_cushion_;
    supply.wants_large = wants_large_;
    const Backed backed = store_.back(arena, *window, supply);
    missing_ = backed.missing_bytes;
    if (backed.outcome == Backing::kDone) return {.block = backed.block, .at = window->begin};
    if (backed.outcome == Backing::kDeviceFailed) {
      if (!internal::is_shortage(backed.status)) {
        failed_ = {.status = backed.status, .has_failed = true};
      }
      store_.begin_search();
    }
    return {};
  }

  // Of the own arena it is looked for once a search, for several attempts.
  std::optional<PageWindow> window_in(const PageArena& arena) {
    if (&arena != &own_) return store_.best_window(arena, request_.rounded);
    if (own_window_of_ != store_.search_number()) {
      own_window_ = store_.best_window(arena, request_.rounded);
      own_window_of_ = store_.search_number();
    }
    return own_window_;
  }

  PagedAllocator& allocator_;
  internal::PageStore& store_;
  const Request& request_;
  PageArena& own_;
  PageArena* other_ = nullptr;
  bool in_cushion_;
  bool wants_large_;
  Place failed_{};
  std::uint64_t missing_ = 0;
  std::optional<PageWindow> own_window_{};
  std::uint64_t own_window_of_ = 0;
};

PagedAllocator::Place PagedAllocator::stitch_within(const Request& request, bool in_cushion) {
  const auto own = arena_for(request.stream, request.kind);
  if (!own) return {.status = own.error(), .has_failed = !internal::is_shortage(own.error())};
  internal::PageStore& store = state_->store;
  if (store.stale_slots() > kMostStale) store.retire(kMostStale / 2);
  const Place found = Stitcher(*this, request, **own, in_cushion).run();
  if (found.is_found() || found.has_failed || in_cushion) return found;
  PageArena* const larger = larger_arena(**own, request);
  return larger == nullptr ? found : Stitcher(*this, request, *larger, in_cushion).run();
}

// Where no window is long enough, the arena may be one that was made while addresses were short.
PagedAllocator::PageArena* PagedAllocator::larger_arena(PageArena& own, const Request& request) {
  internal::PageStore& store = state_->store;
  if (own.kind == internal::ArenaKind::kSlab) return nullptr;
  store.begin_search();
  if (store.best_window(own, request.rounded)) return nullptr;
  const auto larger = store.larger_arena(own);
  if (!larger) return nullptr;
  state_->arenas_of(request.stream).of(own.kind) = *larger;
  return *larger;
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
