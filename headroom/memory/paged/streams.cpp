// The arenas of streams, in PagedAllocator: made when they are first needed, and passed on when
// their stream is gone.
#include <algorithm>

#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using device::DeviceResult;
using internal::PagedState;
using internal::StreamArenas;
using internal::StreamClock;

namespace {

// Of a stream that has arenas.
StreamClock& clock_of(const StreamArenas& arenas) noexcept {
  const internal::PageArena* const any = arenas.normal != nullptr  ? arenas.normal
                                         : arenas.large != nullptr ? arenas.large
                                                                   : arenas.slab;
  return *any->clock;
}

// Of a slab arena it is known only once threads have given back what they keep; but pages that
// sleep are waited for by their slabs.
bool may_be_left(const internal::PageArena& arena) noexcept {
  if (arena.is_private()) return false;
  if (arena.kind != internal::ArenaKind::kSlab) return internal::is_vacant(arena);
  for (const internal::PagedBlock* block = arena.first; block != nullptr; block = block->next) {
    if (!block->is_of_user()) return false;
  }
  return true;
}

}  // namespace

DeviceResult<PagedAllocator::PageArena*> PagedAllocator::arena_for(StreamId stream,
                                                                   internal::ArenaKind kind) {
  PagedState& s = *state_;
  StreamArenas* arenas = s.streams.find(stream);
  if (arenas == nullptr) arenas = replace_gone_stream(stream);
  if (arenas == nullptr) arenas = &s.streams.add(stream);
  PageArena*& arena = arenas->arena(kind);
  if (arena != nullptr) return arena;
  const auto made = s.arenas.make_first(stream, kind);
  if (!made) return made;
  arena = *made;
  if (kind == internal::ArenaKind::kSlab && !s.slabs.has_region()) {
    const auto region = s.arenas.slab_region();
    s.slabs.set_region(region.base, region.size);
  }
  return arena;
}

// Programs that make a stream for every call would leave addresses behind with each. A stream that
// comes takes over from one that was released, if nothing of that one is in use: its clock, its
// addresses, and the mappings there. Its pages become loose. Null where there is no such stream
// among the few that are looked at.
StreamArenas* PagedAllocator::replace_gone_stream(StreamId stream) {
  constexpr int kLooks = 4;
  PagedState& s = *state_;
  if (has_capture()) return nullptr;
  for (int look = 0; look < kLooks; ++look) {
    StreamArenas* const arenas = s.streams.next_in_turn();
    if (arenas == nullptr) return nullptr;
    if (!is_released(arenas->stream) || !leave_arenas(*arenas)) continue;
    for (PageArena* arena : s.table.arenas_of(clock_of(*arenas))) s.table.pass_on(*arena, stream);
    clock_of(*arenas).stream = stream;
    s.streams.pass_on(*arenas, stream);
    return arenas;
  }
  return nullptr;
}

// Takes everything out of the arenas of a stream, unless a block there is in use, or may be.
bool PagedAllocator::leave_arenas(StreamArenas& arenas) {
  PagedState& s = *state_;
  if (arenas.normal == nullptr && arenas.large == nullptr && arenas.slab == nullptr) return false;
  StreamClock& clock = clock_of(arenas);
  const std::vector<PageArena*> all = s.table.arenas_of(clock);
  if (!std::ranges::all_of(all, [](const PageArena* arena) { return may_be_left(*arena); })) {
    return false;
  }
  if (arenas.slab != nullptr) s.slabs.forget_stream(arenas.stream);
  if (arenas.slab != nullptr && !internal::is_vacant(*arenas.slab)) return false;
  s.clocks.mark_moments();
  if (clock.done < clock.freed) return false;
  s.table.leave(all);
  return true;
}

}  // namespace headroom::memory
