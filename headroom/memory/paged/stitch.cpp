// When no hole that is backed is large enough: which pages to create or move, rung by rung, the
// cheapest first.
#include <algorithm>

#include "headroom/memory/internal/shortage.h"
#include "headroom/memory/paged/internal/paged_state.h"

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

void PagedAllocator::forget_request(std::uint64_t peak_before) {
  state_->mover.release_loose();
  state_->budget.forget_request(peak_before);
  settle_budget();
}

void PagedAllocator::settle_budget() {
  state_->budget.settle([this] { return live_pages_bytes(); });
}

PagedAllocator::Place PagedAllocator::stitch(const Request& request) {
  // Slabs must not be emptied while they ask for a page.
  if (request.kind != internal::ArenaKind::kSlab) trim_when_idle();
  PagedState& s = *state_;
  s.budget.begin_request(request.rounded);
  s.budget.begin_asking();
  const std::uint64_t reserved_before = reserved_bytes();
  s.last_growth = device_.now();
  Place found = stitch_within(request, /*in_cushion=*/true);
  if (!found.is_found() && !found.has_failed) found = stitch_within(request, /*in_cushion=*/false);
  s.budget.decide_apart(s.search.stuck_bytes());
  // Under a limit pages are placed the same way each time, however long it takes: a plan holds.
  const bool has_grown = reserved_bytes() > reserved_before;
  if (!has_grown && !limit_is_set()) s.budget.cushion().record_moves(s.last_growth, device_.now());
  return found;
}

// One request, and where its pages may come from: within the cushion, or past it.
class PagedAllocator::Stitcher {
 public:
  Stitcher(PagedAllocator& allocator, const Request& request, PageArena& own, bool in_cushion)
      : allocator_(allocator),
        state_(*allocator.state_),
        request_(request),
        own_(own),
        in_cushion_(in_cushion),
        wants_large_(request.kind != internal::ArenaKind::kLarge ||
                     allocator.is_worth_large_pages(request.rounded)) {
    using internal::ArenaKind;
    // Where blocks may go that find no room in their own arena; slabs keep to theirs.
    if (request.kind == ArenaKind::kSlab) return;
    other_ = state_.streams.find(
        request.stream, request.kind == ArenaKind::kLarge ? ArenaKind::kNormal : ArenaKind::kLarge);
  }

  // Where memory is tight, a window whose ends leave less than the hole would.
  Place better_than(const Block& hole) {
    // A part of what was live: where more is free in whole pages, memory is not tight.
    constexpr std::uint64_t kFreePart = 16;
    state_.search.begin();
    if (state_.search.free_page_bytes() >
        state_.budget.peak_live() / kFreePart + 4 * own_.slot_bytes) {
      state_.end_tight();
      return {};
    }
    const std::uint64_t left = (hole.size - request_.rounded) % own_.slot_bytes;
    return between_ends({.moves_own = true}, left);
  }

  // The rungs. Past the cushion, pages are created only for what moving leaves open.
  Place run() {
    constexpr PageSupply kOwn{.moves_own = true};
    constexpr PageSupply kAll{.moves_own = true, .moves_others = true};
    constexpr PageSupply kAny{.moves_own = true, .moves_others = true, .breaks_large = true};
    if (in_cushion_ && state_.table.loans() > 0) state_.table.take_back_idle();
    state_.search.begin();
    Place found;
    if (in_cushion_) found = create();
    if (!found.is_found()) found = allocator_.overflow(request_, other_, /*may_waste=*/false);
    if (!found.is_found() && in_cushion_) found = attempt(own_, kOwn);
    if (!found.is_found()) found = attempt(own_, in_cushion_ ? kAll : kAny);
    if (!found.is_found() && missing_ > 0 && state_.mover.make_room(own_, missing_, in_cushion_)) {
      found = attempt(own_, kAll);
    }
    if (!found.is_found()) {
      state_.search.begin();
      found = attempt(own_, kAny);
    }
    if (!found.is_found()) found = allocator_.overflow(request_, other_, /*may_waste=*/true);
    if (!found.is_found() && other_ != nullptr) found = attempt(*other_, kAny);
    // Last, so that a program which a limit has room for is served as it would be without one.
    if (!found.is_found() && !in_cushion_) {
      state_.begin_tight();
      found = between_ends(kAny, UINT64_MAX);
    }
    return found.is_found() ? found : failed_;
  }

 private:
  // Within the cushion. Where halves are wanted, free whole pages become halves.
  Place create() {
    constexpr PageSupply kCreate{};
    const Place found = attempt(own_, kCreate);
    if (found.is_found() || !state_.search.wants_halves()) return found;
    if (!state_.mover.make_room(own_, missing_, /*in_cushion=*/true)) return found;
    return attempt(own_, kCreate);
  }

  // A window that begins and ends in parts of pages in use elsewhere.
  Place between_ends(PageSupply supply, std::uint64_t most_waste) {
    if (request_.kind == internal::ArenaKind::kSlab || state_.clocks.is_capturing()) return {};
    state_.search.begin();
    const auto window = state_.ends.best_window(own_, request_.rounded, most_waste);
    if (!window) return {};
    supply.creates_in_cushion = most_waste == UINT64_MAX;
    supply.creates = !in_cushion_;
    supply.wants_large = false;
    Place found = place_of(state_.mover.back_between_ends(own_, *window, supply), window->begin);
    found.has_loans = found.is_found();
    return found;
  }

  Place place_of(const Backed& backed, DeviceAddress begin) {
    missing_ = backed.missing_bytes;
    if (backed.outcome == Backing::kDone) return {.hole = backed.hole, .at = begin};
    if (backed.outcome == Backing::kDeviceFailed) {
      if (!internal::is_shortage(backed.status)) {
        failed_ = {.status = backed.status, .has_failed = true};
      }
      state_.search.begin();
    }
    return {};
  }

  Place attempt(PageArena& arena, PageSupply supply) {
    const std::optional<PageWindow> window = window_in(arena);
    if (!window) return {};
    supply.creates_in_cushion = true;
    supply.creates = !in_cushion_;
    supply.wants_large = wants_large_;
    return place_of(state_.mover.back(arena, *window, supply), window->begin);
  }

  // Of the own arena it is looked for once a search, for several attempts.
  std::optional<PageWindow> window_in(const PageArena& arena) {
    if (&arena != &own_) return state_.search.best_window(arena, request_.rounded);
    if (own_window_of_ != state_.table.search_number()) {
      own_window_ = state_.search.best_window(arena, request_.rounded);
      own_window_of_ = state_.table.search_number();
    }
    return own_window_;
  }

  PagedAllocator& allocator_;
  PagedState& state_;
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
  PagedState& s = *state_;
  if (s.table.stale_mappings() > kMostStale) s.mover.unmap_stale(kMostStale / 2);
  const Place found = Stitcher(*this, request, **own, in_cushion).run();
  if (found.is_found() || found.has_failed || in_cushion) return found;
  PageArena* const larger = larger_arena(**own, request);
  return larger == nullptr ? found : Stitcher(*this, request, *larger, in_cushion).run();
}

// A place that leaves less of its last page than the hole would; where memory is tight.
PagedAllocator::Place PagedAllocator::fit_better(const Request& request, const Block& hole) {
  PagedState& s = *state_;
  if (request.kind != internal::ArenaKind::kNormal || !s.is_tight_for(request.rounded, hole.size)) {
    return {};
  }
  PageArena* const own = s.streams.find(request.stream, request.kind);
  s.budget.begin_request(request.rounded);
  return Stitcher(*this, request, *own, /*in_cushion=*/true).better_than(hole);
}

// Where no window is long enough, the arena may be one that was made while addresses were short.
PagedAllocator::PageArena* PagedAllocator::larger_arena(PageArena& own, const Request& request) {
  PagedState& s = *state_;
  if (own.kind == internal::ArenaKind::kSlab) return nullptr;
  s.search.begin();
  if (s.search.best_window(own, request.rounded)) return nullptr;
  const auto larger = s.arenas.make_larger(own);
  if (!larger) return nullptr;
  s.streams.find(request.stream)->arena(own.kind) = *larger;
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
  other->free->for_each_from(request.rounded, [&](Block& hole) {
    const DeviceAddress end = hole.address + hole.size;
    for (const DeviceAddress begin : {hole.address, end - request.rounded}) {
      const std::uint64_t touched =
          internal::free_page_bytes_touched(hole, begin, begin + request.rounded);
      if (touched > least || (touched == least && best.is_found())) continue;
      least = touched;
      best = {.hole = &hole, .at = begin};
    }
    return ++looks < kOverflowLooks;
  });
  return best;
}

}  // namespace headroom::memory
