// The values that cross between PyTorch's side and ours: statistics, snapshots, traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace headroom::bridge {

using NativeStream = std::uintptr_t;
// What the owner remembers of an allocation: PyTorch's stack, which is not looked into.
using Context = std::shared_ptr<void>;

struct PoolKey {
  std::uint64_t graph = 0;
  std::uint64_t user = 0;

  friend bool operator==(const PoolKey&, const PoolKey&) = default;
};

// --- Statistics ----------------------------------------------------------------------------------

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;
};

struct StatArray {
  Stat all;
  Stat small_pool;
  Stat large_pool;
};

// PyTorch's, by its names.
struct DeviceStats {
  StatArray allocation;
  StatArray segment;
  StatArray active;
  StatArray inactive_split;
  StatArray allocated_bytes;
  StatArray reserved_bytes;
  StatArray active_bytes;
  StatArray inactive_split_bytes;
  StatArray requested_bytes;
  Stat oversize_allocations;
  Stat oversize_segments;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_oom_rejections = 0;
  std::int64_t max_split_size = -1;
};

// --- Snapshots and history -----------------------------------------------------------------------

struct Block {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;
  bool is_allocated = false;
  bool is_active = false;  // allocated, or freed and still in use by a stream
  Context context{};
};

struct Segment {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t active_bytes = 0;
  NativeStream stream = 0;
  bool is_large = false;
  bool is_expandable = false;
  PoolKey pool{};
  std::vector<Block> blocks{};
  Context context{};
};

// In the order of PyTorch's own enumeration.
enum class TraceAction : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOutOfMemory,  // `address` holds the device's free bytes
};

using SharedText = std::shared_ptr<const std::string>;

struct TraceEntry {
  TraceAction action = TraceAction::kAlloc;
  int device = 0;
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
  NativeStream stream = 0;
  PoolKey pool{};
  std::int64_t time_us = 0;  // since the epoch
  Context context{};
  SharedText compile_context{};  // null: none
  SharedText user_metadata{};
};

// How much of stacks is kept, in PyTorch's order.
enum class KeepContexts : std::uint8_t { kNever, kState, kAlloc, kAll };

struct HistorySettings {
  bool is_enabled = false;
  std::function<Context()> make_context{};
  std::uint64_t max_entries = 1;
  KeepContexts keep = KeepContexts::kNever;
  bool clears = false;
  std::vector<std::string> skipped_actions{};  // as snapshots spell them
};

// --- Pools and handles ---------------------------------------------------------------------------

// Restored by restore_pool: what a pool held at one moment.
struct PoolState {
  PoolKey pool{};
  std::vector<Block> blocks{};  // allocated ones
};
struct PoolChange {
  std::vector<void*> freed{};
  std::vector<void*> allocated{};
};

// Gives memory in whole segments to a pool that does not take it from the device.
struct SegmentSource {
  std::function<void*(std::size_t size_bytes, NativeStream stream)> allocate{};  // null: no memory
  std::function<void(void* segment)> free{};
};

// A block made ready for another process.
struct ShareableBlock {
  std::ptrdiff_t offset_bytes = 0;  // of the block in what the handle stands for
  std::string handle{};
};

}  // namespace headroom::bridge
