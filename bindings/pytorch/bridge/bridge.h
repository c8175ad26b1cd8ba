// What PyTorch's CUDA allocator interface asks, over memory::Allocator: the whole interface between
// the files that know PyTorch and those that are ours.
//
//   DeviceMemory& memory = device_memory(0);
//   void* block = memory.allocate(size, stream);         // null: last_failure() says why
//   free_block(block);
//
// Only the standard library is included, so that the files that include PyTorch's headers need no
// other header of ours. Streams are PyTorch's handles (a cudaStream_t as an integer). Any thread
// may call anything. Functions that are not noexcept throw std::runtime_error with a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bindings/pytorch/bridge/values.h"

#define HEADROOM_BRIDGE __attribute__((visibility("default")))

namespace headroom::bridge {

// --- Who is told ---------------------------------------------------------------------------------

// Of all devices, those to come too.
HEADROOM_BRIDGE void set_history(HistorySettings settings);
[[nodiscard]] HEADROOM_BRIDGE bool is_history_enabled() noexcept;
// Called inside the allocator for every entry, whether or not a history is kept, for ever.
HEADROOM_BRIDGE void add_trace_tracker(std::function<void(const TraceEntry&)> tracker);
// Of this thread; they are kept with its entries.
HEADROOM_BRIDGE void push_compile_context(std::string text);
HEADROOM_BRIDGE void pop_compile_context();
HEADROOM_BRIDGE void set_user_metadata(std::string text);
[[nodiscard]] HEADROOM_BRIDGE std::string user_metadata();

// Told of every failure: device, allocated bytes, the device's total, its free bytes.
using OutOfMemoryObserver =
    std::function<void(int device, std::uint64_t asked, std::uint64_t total, std::uint64_t free)>;
HEADROOM_BRIDGE void add_out_of_memory_observer(OutOfMemoryObserver observer);
// Asked for memory when the cache cannot serve; says whether it freed some.
HEADROOM_BRIDGE void add_free_callback(std::function<bool()> callback);

// --- Failures ------------------------------------------------------------------------------------

struct Failure {
  bool is_out_of_memory = true;  // else the device failed, or this is the child of a fork
  std::string text{};
};
// Of this thread's last allocation that gave null.
[[nodiscard]] HEADROOM_BRIDGE const Failure& last_failure() noexcept;

// --- One device ----------------------------------------------------------------------------------

class HEADROOM_BRIDGE DeviceMemory {
 public:
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Null for 0 bytes, and where it failed. `is_lasting`: the stream is never destroyed, so that its
  // handle is always the same stream.
  [[nodiscard]] void* allocate(std::size_t size_bytes,
                               NativeStream stream,
                               bool is_lasting) noexcept;
  // False where the block is not this device's.
  bool free(void* block) noexcept;
  // A block that is not ours is left alone.
  void record_stream(void* block, NativeStream stream, bool is_lasting);

  [[nodiscard]] DeviceStats stats() const;
  void reset_accumulated_stats() noexcept;
  void reset_peak_stats() noexcept;
  [[nodiscard]] std::uint64_t allocated_bytes() const;
  [[nodiscard]] std::uint64_t reserved_bytes() const;
  // Of a live block; 0 where there is none.
  [[nodiscard]] std::uint64_t block_bytes(void* block) const;

  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const noexcept;
  void set_limit(std::optional<std::uint64_t> limit_bytes) noexcept;
  std::uint64_t empty_cache(PoolKey pool) noexcept;
  std::uint64_t trim(std::uint64_t keep_bytes) noexcept;
  // The most that one request could get now, from the cache or the device.
  [[nodiscard]] std::uint64_t largest_request_bytes() const;
  // The start and size of what the address lies in; null where it is not ours.
  [[nodiscard]] void* segment_of(void* address, std::size_t* size_bytes) const;

  // By address; the default key means all pools.
  [[nodiscard]] std::vector<Segment> segments(PoolKey pool) const;
  [[nodiscard]] std::vector<TraceEntry> trace() const;
  void record_snapshot();

  // The filter is asked with a stream's handle. `capturing`: the stream that may be captured while
  // the scope is open.
  void begin_allocate_to_pool(PoolKey pool,
                              std::function<bool(NativeStream)> filter,
                              NativeStream capturing);
  void end_allocate_to_pool(PoolKey pool);
  void retain_pool(PoolKey pool);
  void release_pool(PoolKey pool);
  [[nodiscard]] int pool_use_count(PoolKey pool) const noexcept;
  void set_pool_no_split(PoolKey pool);
  void set_pool_use_on_failure(PoolKey pool, bool serves_failures);
  void set_pool_source(PoolKey pool, SegmentSource source);
  [[nodiscard]] bool holds_exactly(PoolKey pool, const std::unordered_set<void*>& blocks) const;
  [[nodiscard]] PoolState pool_state(PoolKey pool) const;
  PoolChange restore_pool(const PoolState& state);

  // A block for another process, and one of another process, mapped for as long as it is held. Both
  // throw where they cannot: a block on more than 4,096 pages, memory of a pool's own allocator.
  [[nodiscard]] ShareableBlock share(void* block) const;
  [[nodiscard]] std::shared_ptr<void> open_shared(const std::string& handle) const;
  // Lets another GPU, by its index, use this one's memory.
  void allow_peer(int index) const;

  // For programs that look: the account as text and as JSON, statistics by PyTorch's keys.
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string account_json() const;
  [[nodiscard]] std::map<std::string, std::int64_t> flat_stats() const;

 private:
  friend class Process;
  class Impl;
  explicit DeviceMemory(std::unique_ptr<Impl> impl);
  ~DeviceMemory();  // never: memory may be freed until the very end of the process

  std::unique_ptr<Impl> impl_;
};

// --- The process ---------------------------------------------------------------------------------

struct Settings {
  std::string device_kind = "cuda";            // tests have another
  std::optional<std::uint64_t> limit_bytes{};  // of each device
  std::string configuration{};                 // as HEADROOM_ALLOC_CONF has it
};
// Before the first device is opened. Returns the variables of PyTorch's that are ignored.
HEADROOM_BRIDGE std::vector<std::string> configure(const Settings& settings);

// Opened when first asked for. The error says why there is none.
[[nodiscard]] HEADROOM_BRIDGE DeviceMemory& device_memory(int device);
// Null where it was not opened.
[[nodiscard]] HEADROOM_BRIDGE DeviceMemory* opened_memory(int device) noexcept;
// Highest index of an opened device, plus one.
[[nodiscard]] HEADROOM_BRIDGE int opened_count() noexcept;
// Whoever's device the block is of. False where it is nobody's.
HEADROOM_BRIDGE bool free_block(void* block) noexcept;
HEADROOM_BRIDGE std::uint64_t empty_caches(PoolKey pool) noexcept;

// --- Scopes, memory that is not needed
// -------------------------------------------------------------------------

struct ScopePeaks {
  std::string path{};
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  std::uint64_t peak_live = 0;
};
// Names what this thread allocates until pop_scope, and watches the peaks of the device meanwhile.
HEADROOM_BRIDGE void push_scope(std::string_view name, int device);
HEADROOM_BRIDGE ScopePeaks pop_scope();

// From now on, `after_ms` after a device's last growth, keeps at most `keep_bytes` cached there.
// Nothing turns it off again but a negative time.
HEADROOM_BRIDGE void set_idle_trim(std::int64_t after_ms, std::uint64_t keep_bytes);

// Of every opened device: what was allocated in a scope of this name (all of it, without one) gives
// its memory back and keeps its addresses, until wake(). Returns the bytes that came back. A device
// that refuses throws; the others may sleep then, and a second call goes on.
HEADROOM_BRIDGE std::uint64_t sleep(std::string_view tag, bool keeps_contents);
// Nothing where a device has too little memory: last_failure() says why, and it sleeps on.
[[nodiscard]] HEADROOM_BRIDGE std::optional<std::uint64_t> wake(std::string_view tag);

[[nodiscard]] HEADROOM_BRIDGE std::string version();

}  // namespace headroom::bridge
