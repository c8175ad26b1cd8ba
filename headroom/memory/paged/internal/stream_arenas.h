// StreamArenas: the arenas of one stream; StreamArenaTable: those of all.
//
// A stream that was released leaves its arenas to one that comes later: see
// PagedAllocator::replace_gone_stream.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>

#include "headroom/memory/paged/internal/pages.h"

namespace headroom::memory::internal {

// Null where none was needed yet.
struct StreamArenas {
  StreamId stream = StreamId::kDefault;
  PageArena* normal = nullptr;
  PageArena* large = nullptr;
  PageArena* slab = nullptr;

  [[nodiscard]] PageArena*& arena(ArenaKind kind) noexcept {
    return kind == ArenaKind::kNormal ? normal : kind == ArenaKind::kLarge ? large : slab;
  }
};

// Every function requires the allocator's lock.
class StreamArenaTable {
 public:
  // Null where the stream has none. Most requests come from the stream of the one before.
  [[nodiscard]] StreamArenas* find(StreamId stream) noexcept {
    if (last_ != nullptr && last_->stream == stream) [[likely]] {
      return last_;
    }
    const auto found = by_stream_.find(stream);
    if (found == by_stream_.end()) return nullptr;
    last_ = found->second;
    return last_;
  }
  // Null too where the stream has none of this kind.
  [[nodiscard]] PageArena* find(StreamId stream, ArenaKind kind) noexcept {
    StreamArenas* const arenas = find(stream);
    return arenas == nullptr ? nullptr : arenas->arena(kind);
  }
  // Of a stream that has none.
  StreamArenas& add(StreamId stream) {
    StreamArenas*& place = by_stream_[stream];
    place = &all_.emplace_back(StreamArenas{.stream = stream});
    return *place;
  }
  // One after another, over and over; null where there are none.
  [[nodiscard]] StreamArenas* next_in_turn() noexcept {
    if (all_.empty()) return nullptr;
    if (turn_ >= all_.size()) turn_ = 0;
    return &all_[turn_++];
  }
  // They are those of another stream, which has none yet, from now on.
  void pass_on(StreamArenas& arenas, StreamId to) noexcept {
    by_stream_.erase(to);
    auto node = by_stream_.extract(arenas.stream);
    node.key() = to;
    by_stream_.insert(std::move(node));
    arenas.stream = to;
  }

 private:
  std::deque<StreamArenas> all_{};
  std::unordered_map<StreamId, StreamArenas*> by_stream_{};
  StreamArenas* last_ = nullptr;
  std::size_t turn_ = 0;
};

}  // namespace headroom::memory::internal
