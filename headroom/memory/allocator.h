// Allocator: every byte of a device goes through one.
//
//   memory::CachingAllocator allocator(device);
//   DeviceAddress block = allocator.allocate(3_MiB);     // throws OutOfMemory, with its report
//   if (auto more = allocator.try_allocate(1_GiB)) ...    // or a value
//   allocator.record_stream(block, copy_stream);          // copy_stream reads it too
//   allocator.free(block);                                // reused when both are done
//
// This is what a user sees of every allocator. Limits, statistics, peaks, categories, events,
// callbacks, the account and the out-of-memory report are the same for all; where a block lies and
// when memory comes and goes is decided by a core (CachingAllocator, PagedAllocator), whose side of
// this class is in core.h.
//
// Any thread may call anything, and may free what another allocated. No two allocators share a
// lock. Addresses are aligned to 512 bytes. Zero bytes give address 0, which may be freed.
//
// Not in a signal handler: it may have interrupted the very call that holds the lock. In the child
// of a fork an allocator holds nothing: what can fail answers kForked or throws Forked, a question
// that cannot fail has an empty answer, a free does nothing. A child may always exit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/result.h"
#include "headroom/device/device.h"
#include "headroom/memory/account.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/event.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/memory/pool.h"
#include "headroom/memory/sleep.h"
#include "headroom/memory/stats.h"
#include "headroom/memory/types.h"

namespace headroom::memory {

class AllocatorCore;
struct AllocatorChoice;

// Decides which streams' allocations go to a private pool; an empty one accepts every stream.
// Called without a lock; may call the allocator, and what it allocates there goes to the default
// pool. A request whose filter throws fails.
using StreamFilter = std::function<bool(StreamId)>;

// Makes the tag of the allocation that begins. Called without a lock; must not call the allocator.
// A tag's end runs inside the allocator, so it is quick and does not call it either.
using TagMaker = std::function<Tag()>;

class Allocator {
 public:
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator();

  [[nodiscard]] device::Device& device() const noexcept { return device_; }
  // Whether this is the child of a fork, and the allocator its parent's.
  [[nodiscard]] bool is_forked() const noexcept;

  // --- Blocks ---------------------------------------------------------------------------------

  [[nodiscard]] AllocationResult<DeviceAddress> try_allocate(
      std::uint64_t size_bytes, StreamId stream = StreamId::kDefault) noexcept;
  // Throws OutOfMemory, or Error when the device failed.
  [[nodiscard]] DeviceAddress allocate(std::uint64_t size_bytes,
                                       StreamId stream = StreamId::kDefault);
  // Says what is wrong with an address that is not a live block: freed twice, or not ours.
  device::DeviceResult<void> try_free(DeviceAddress address) noexcept;
  // The same, but a mistake is counted and told once on stderr.
  void free(DeviceAddress address) noexcept;
  // The block is in use by `stream` too: once freed it is not handed out again before what is
  // queued there by then has run.
  device::DeviceResult<void> record_stream(DeviceAddress address, StreamId stream) noexcept;
  // Completes the frees whose other streams are done. Allocations do this by themselves.
  void process_events() noexcept;
  // The live block that starts at `address`.
  [[nodiscard]] std::optional<BlockInfo> find_block(DeviceAddress address) const;

  // The block that the byte at `address` lies in, if it is held. Looks at every block.
  [[nodiscard]] std::optional<BlockPlace> locate(DeviceAddress address) const;

  // The pages that the held block at `address` lies on, by address: they stay where they are until
  // it is freed. Throws InvalidArgument where the allocator has no pages (PagedAllocator has), the
  // block is not held, or its memory is somebody else's.
  [[nodiscard]] std::vector<PageAt> pages_of(DeviceAddress address) const;

  // --- Settings -------------------------------------------------------------------------------

  // Which allocator this is and how it is set, as make_allocator() takes it; to_string() has it as
  // text. A limit that was set since is not in it.
  [[nodiscard]] AllocatorChoice settings() const;
  // Changes settings at run time, as torch.cuda.memory._set_allocator_settings does: cached blocks
  // stay as they are, and so does the limit. What a text does not name keeps its value; it is read
  // strictly. Throws InvalidArgument with what is wrong, or cannot change any more; then nothing
  // has changed.
  void configure(const AllocatorChoice& wanted);
  void configure(std::string_view text);

  // --- Graph captures -------------------------------------------------------------------------

  // A graph capture is under way on this device: nothing is waited for, queried, moved or given
  // back until it ends. Captures nest. end_capture throws InvalidArgument when none is under way.
  void begin_capture();
  void end_capture();
  [[nodiscard]] bool is_capturing() const noexcept;

  // --- Limits ---------------------------------------------------------------------------------

  // Bounds what may be reserved; nothing removes the bound. What is reserved already stays.
  void set_limit(std::optional<std::uint64_t> limit_bytes) noexcept;
  [[nodiscard]] std::optional<std::uint64_t> limit() const noexcept;
  // A share of the device, from 0 to 1; 1 removes the bound. Throws InvalidArgument.
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const noexcept;

  // --- Cached memory --------------------------------------------------------------------------

  // Gives all cached memory that can be given back to the device, after waiting for pending frees.
  // Returns the bytes.
  std::uint64_t empty_cache() noexcept;
  // The same for one private pool, and nothing while somebody uses it.
  std::uint64_t empty_cache(PoolId pool) noexcept;
  // The most that one request on the stream gets without anything from the device.
  [[nodiscard]] std::uint64_t largest_cached_bytes(StreamId stream = StreamId::kDefault) const;
  // Gives cached memory back until at most `keep_bytes` are cached, or no more can be.
  std::uint64_t trim(std::uint64_t keep_bytes) noexcept;
  // One step of a program that repeats itself has ended. Cached memory goes back to where it was
  // when an earlier step ended with the same blocks in use, so that every step finds what the one
  // before found, and needs no more. Costs no call of the device once steps repeat.
  void mark_step() noexcept;
  // Takes memory from the device into the cache: `size_bytes`, or without a size all that the
  // limit and the device allow. It serves later requests, and goes back when the device runs short
  // or the cache is emptied. Returns the bytes taken.
  AllocationResult<std::uint64_t> reserve(std::optional<std::uint64_t> size_bytes = std::nullopt,
                                          StreamId stream = StreamId::kDefault) noexcept;

  // --- Sleep ------------------------------------------------------------------------------------

  // The blocks that were allocated in a scope of this name (`a/b`: one in the other; no name: all)
  // give their memory back to the device and keep their addresses, which nobody may use until
  // wake(); they may be freed. Waits for what is queued on the streams that use them. A page that
  // other blocks share stays. Blocks of up to 64 KiB sleep and wake by the page, where all that are
  // held in it were allocated in the scope; others stay awake. Statistics and sinks see a free, and
  // an allocation when they wake. Throws InvalidArgument where the allocator cannot do it
  // (PagedAllocator can), during a capture, and where one of the blocks is in a private pool; Error
  // where the device failed. Then nothing sleeps that did not before.
  SleepChange sleep(std::string_view scope, SleepContents contents = SleepContents::kDiscarded);
  // Those of these blocks that sleep have memory again, all or none. Throws as sleep does, and
  // OutOfMemory: what sleeps goes on sleeping, and a later call may succeed.
  SleepChange wake(std::string_view scope);
  [[nodiscard]] AllocationResult<SleepChange> try_wake(std::string_view scope);

  // --- Private pools --------------------------------------------------------------------------

  // An id no pool has; the pool itself exists from begin_allocate_to_pool on.
  [[nodiscard]] PoolId new_pool_id() noexcept;
  // From now on, allocations on the streams the filter accepts come from the pool (newest scope
  // first). Throws InvalidArgument when the pool is open already or was released.
  void begin_allocate_to_pool(PoolId id, StreamFilter filter);
  void end_allocate_to_pool(PoolId id);
  // One user more, who calls release_pool; makes the pool where there is none. Every begin counts
  // as one too. Throws InvalidArgument when the pool was released.
  void retain_pool(PoolId id);
  // One user less. With the last, the pool's cached memory may be given back.
  void release_pool(PoolId id);
  // 0 when the pool was released, or never was.
  [[nodiscard]] int pool_use_count(PoolId id) const noexcept;
  // These two throw InvalidArgument where there is no such pool in use.
  // Every allocation of the pool takes a whole segment, until the pool is released.
  void set_pool_no_split(PoolId id);
  // Whether the pool's cached blocks serve requests that would fail otherwise.
  void set_pool_use_on_failure(PoolId id, bool serves_failures);
  // From now on the pool's segments come from there, and go back there. The source lives as long as
  // the pool or one of its segments. Throws InvalidArgument where there is no such pool in use, it
  // has memory already, or the allocator cannot do it (PagedAllocator can).
  void set_pool_source(PoolId id, SegmentSource source);
  // From now on the pool's blocks that are handed out are exactly these, at their addresses, as
  // segments(pool) listed them before: the others are freed. What is in both stays as it is. The
  // caller sees to it that nothing queued still uses what is freed. Throws InvalidArgument, and
  // then nothing has changed, where the pool has not these addresses any more, another stream uses
  // one of its blocks, or the allocator cannot do it (PagedAllocator can).
  PoolChange restore_pool(PoolId id, std::span<const BlockInfo> blocks);

  // --- Statistics and reports -----------------------------------------------------------------

  [[nodiscard]] Statistics statistics() const;
  void reset_peak_statistics() noexcept;
  void reset_accumulated_statistics() noexcept;
  // Wrong calls of free() so far.
  [[nodiscard]] std::uint64_t misuse_count() const noexcept;
  // Where the bytes of the device are; for a request that failed, or in general.
  [[nodiscard]] Account account() const;
  // Every segment with its blocks, by address. `sequence` is set to the number of the next event:
  // the segments are as the events before it left them.
  [[nodiscard]] std::vector<SegmentInfo> segments(std::uint64_t* sequence = nullptr) const;
  // Those of one pool; of the default one too.
  [[nodiscard]] std::vector<SegmentInfo> segments(PoolId pool) const;
  // All that decides what the next requests get, as one number: after two moments that have the
  // same, the same requests of the same threads are answered the same way. Addresses are not in
  // it, nor are streams' queues.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // A sentence about the first broken invariant, or nothing.
  [[nodiscard]] std::optional<std::string> check_invariants() const;

  // --- Who is told ----------------------------------------------------------------------------

  // Tells the sink of every action that it wants, from now until remove_sink, which it outlives.
  // Several sinks are told in the order in which they were added; a sink that is added again has
  // its wishes changed. A sink changes no decision: a program of one thread gets the same addresses
  // with it. Without one an event costs one branch; a sink that wants no block actions costs an
  // allocation from the cache nothing.
  void add_sink(EventSink& sink, Actions wanted = kAllActions);
  void remove_sink(EventSink& sink) noexcept;
  // From now on every allocation has a tag, which its events, its block and the segment that was
  // taken for it carry. An empty maker ends that and drops all tags.
  void set_tag_maker(TagMaker maker);
  using CallbackId = std::uint64_t;
  // Asked to free something when the cache cannot serve; answers whether it did. Called without
  // a lock; may call the allocator.
  CallbackId add_free_callback(std::function<bool()> callback);
  // Told of every failure before it is reported. Called without a lock.
  CallbackId add_out_of_memory_callback(std::function<void(const OutOfMemoryReport&)> callback);
  void remove_callback(CallbackId id) noexcept;

 private:
  friend class AllocatorCore;
  friend class PeakScope;
  // Only a core is an allocator.
  Allocator(device::Device& device, AllocatorCore& core) noexcept : device_(device), core_(core) {}

  [[nodiscard, gnu::always_inline]] DeviceAddress allocate_or_fail(
      std::uint64_t size_bytes,
      StreamId stream,
      std::optional<AllocationFailure>& failure) noexcept;

  device::Device& device_;
  AllocatorCore& core_;  // this object's own other side
};

}  // namespace headroom::memory
