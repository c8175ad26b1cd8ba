// What a CachingAllocator remembers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/allocator.h"
#include "headroom/memory/config.h"
#include "headroom/memory/internal/address_map.h"
#include "headroom/memory/internal/block.h"

namespace headroom::memory::internal {

struct PrivatePool;

// The free blocks of one kind.
struct BlockPool {
  // By stream, ascending; the order in which a flush walks them. Indexes keep their place.
  std::map<StreamId, FreeIndex> free{};
  UnmappedSet unmapped{};
  bool is_small = false;
  PrivatePool* owner = nullptr;  // null for the default pools
  // Searches of this pool so far: the clock that garbage collection measures age with.
  std::uint64_t searches = 0;
  StreamId last_stream = StreamId::kDefault;
  FreeIndex* last_index = nullptr;

  [[nodiscard]] PoolId id() const noexcept;
  // Made when a stream is first seen. Most requests come from the stream of the one before.
  [[nodiscard]] FreeIndex& index_of(StreamId stream) {
    if (last_index == nullptr || last_stream != stream) {
      last_index = &free[stream];
      last_stream = stream;
    }
    return *last_index;
  }
  template <class Function>
  void for_each_free(Function&& function) const {
    for (const auto& [stream, index] : free) index.for_each(function);
  }
  // The free blocks in order, to walk while blocks leave the pool.
  [[nodiscard]] std::vector<Block*> free_blocks() const {
    std::vector<Block*> blocks;
    for_each_free([&](const FreeKey& key) { blocks.push_back(key.block); });
    return blocks;
  }
  [[nodiscard]] bool has_free() const noexcept {
    return std::any_of(free.begin(), free.end(), [](const auto& e) { return !e.second.empty(); });
  }
};

struct PrivatePool {
  PoolId id{};
  // Scopes and graphs that still need the pool; at 0 its cached memory may go.
  int use_count = 1;
  // Requests under way that may have opened the lock.
  int requests = 0;
  BlockPool small{.is_small = true};
  BlockPool large{};
};

inline PoolId BlockPool::id() const noexcept { return owner == nullptr ? PoolId{} : owner->id; }

// One long reservation of addresses with pages mapped as they are needed.
struct ExpandableSegment {
  DeviceAddress address = 0;
  std::uint64_t page_bytes = 0;
  StreamId stream = StreamId::kDefault;
  std::vector<device::PageHandle> pages{};  // kNone where nothing is mapped

  [[nodiscard]] std::uint64_t size() const noexcept { return page_bytes * pages.size(); }
};

struct Scope {
  PoolId id{};
  StreamFilter filter{};
};

struct PendingFree {
  device::EventId event = device::EventId::kNone;  // kNone: recording failed, to be tried again
  Block* block = nullptr;
};

struct CachingState {
  AllocatorConfig config{};
  PyTorchVersion version{};

  BlockStore blocks{};
  BlockPool small{.is_small = true};
  BlockPool large{};
  std::map<PoolId, std::unique_ptr<PrivatePool>> private_pools{};
  std::vector<Scope> scopes{};
  int captures = 0;

  // Handed out, or freed and pending.
  AddressMap active{};

  std::map<StreamId, std::deque<PendingFree>> pending{};
  std::vector<Block*> deferred{};  // freed with stream uses during a capture

  std::vector<std::unique_ptr<ExpandableSegment>> expandable_segments{};
  std::uint64_t next_serial = 0;

  // Streams the device has confirmed as its own.
  std::unordered_set<StreamId> known_streams{StreamId::kDefault};

  // What the device refused to take back; tried again at every flush.
  std::vector<device::PageHandle> stray_pages{};
  std::vector<DeviceAddress> stray_reservations{};
};

}  // namespace headroom::memory::internal
