// Allocator: every byte of a device goes through one.
//
//   memory::CachingAllocator allocator(device);
//   DeviceAddress block = allocator.allocate(3_MiB);     // throws OutOfMemory, with its report
//   if (auto more = allocator.try_allocate(1_GiB)) ...    // or a value
//   allocator.record_stream(block, copy_stream);          // copy_stream reads it too
//   allocator.free(block);                                // reused when both are done
//
// This class is the shell that both allocators share: limits, statistics, peaks, categories,
// events, callbacks, the account and the out-of-memory report are written here, once. What is left
// to a core (CachingAllocator, PagedAllocator) are the `do_` functions: place, free, grow, give
// back. A core calls the note_ functions when something happened, with `mutex_` held.
//
// Any thread may call anything, and may free what another allocated. No two allocators share a
// lock. Addresses are aligned to 512 bytes. Zero bytes give address 0, which may be freed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/mutex.h"
#include "headroom/base/result.h"
#include "headroom/device/device.h"
#include "headroom/memory/account.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/event.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/memory/stats.h"
#include "headroom/memory/types.h"

namespace headroom::memory {

namespace internal {
struct ThreadTally;
}  // namespace internal

enum class FailureReason : std::uint8_t {
  kOutOfMemory,  // after the whole ladder
  kRejected,     // by policy, before anything was tried
  kTooLarge,     // 1 EiB or more
  kDevice,       // the device failed; `status` says how
};

struct AllocationFailure {
  FailureReason reason = FailureReason::kOutOfMemory;
  device::DeviceStatus status{};
  // Null only when there was no host memory left to write it.
  std::shared_ptr<const OutOfMemoryReport> report{};
};

template <class T>
using AllocationResult = Result<T, AllocationFailure>;

// Decides which streams' allocations go to a private pool; an empty one accepts every stream.
// Called without a lock; may call the allocator, and what it allocates there goes to the default
// pool. A request whose filter throws fails.
using StreamFilter = std::function<bool(StreamId)>;

class Allocator {
 public:
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator();

  [[nodiscard]] device::Device& device() const noexcept { return device_; }
  [[nodiscard]] virtual std::string_view policy() const noexcept = 0;

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

  // --- Private pools --------------------------------------------------------------------------

  // An id no pool has; the pool itself exists from begin_allocate_to_pool on.
  [[nodiscard]] PoolId new_pool_id() noexcept;
  // From now on, allocations on the streams the filter accepts come from the pool (newest scope
  // first). Throws InvalidArgument when the pool is open already or was released.
  void begin_allocate_to_pool(PoolId id, StreamFilter filter);
  void end_allocate_to_pool(PoolId id);
  // The pool's cached memory may be given back from now on.
  void release_pool(PoolId id);

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
  using CallbackId = std::uint64_t;
  // Asked to free something when the cache cannot serve; answers whether it did. Called without
  // a lock; may call the allocator.
  CallbackId add_free_callback(std::function<bool()> callback);
  // Told of every failure before it is reported. Called without a lock.
  CallbackId add_out_of_memory_callback(std::function<void(const OutOfMemoryReport&)> callback);
  void remove_callback(CallbackId id) noexcept;

 protected:
  explicit Allocator(device::Device& device);

  // What the note_ functions need to know of a block.
  struct BlockNote {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t requested_bytes = 0;
    StreamId stream = StreamId::kDefault;
    PoolId pool{};
    bool is_small = false;
    AllocationContext context{};
  };
  struct SegmentNote {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
    StreamId stream = StreamId::kDefault;
    PoolId pool{};
    bool is_small = false;
  };
  // A request that failed, for the report.
  struct FailedRequest {
    FailureReason reason = FailureReason::kOutOfMemory;
    device::DeviceStatus status{};
    std::uint64_t asked_bytes = 0;
    std::uint64_t rounded_bytes = 0;
    std::uint64_t segment_bytes = 0;
    StreamId stream = StreamId::kDefault;
  };
  // What the core adds to an account, besides the statistics.
  struct CoreAccount {
    std::uint64_t cached_stream_bytes = 0;
    std::uint64_t cached_hard_bytes = 0;
    std::uint64_t cached_soft_bytes = 0;
    std::uint64_t cached_private_bytes = 0;  // of the above, in private pools
    std::uint64_t largest_cached_bytes = 0;
    bool is_expandable = false;
    std::uint64_t page_bytes = 0;  // of pages that move to where they are needed
    std::optional<std::uint64_t> expandable_reserve_bytes{};  // of a segment, where configured
  };
  struct LiveBlock {
    std::uint64_t requested_bytes = 0;
    std::uint64_t size_bytes = 0;
    AllocationContext context{};
  };

  // All require mutex_. Inline, in internal/notes.h, which a core includes.
  void note_alloc(const BlockNote& block) noexcept;
  void note_free_requested(const BlockNote& block) noexcept;
  void note_free_completed(const BlockNote& block) noexcept;
  void note_segment(Action action, const SegmentNote& segment) noexcept;
  // The two halves of it, for a core whose physical memory moves between addresses: memory that
  // came or went, and where it is seen.
  void count_segment(bool is_growth, bool is_small, std::uint64_t size_bytes) noexcept;
  void tell_segment(Action action, const SegmentNote& segment) noexcept;
  // What one thread did without the lock, all of it in the small pool.
  void note_threads(const internal::ThreadTally& tally) const noexcept;
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept {
    return static_cast<std::uint64_t>(stats_.reserved_bytes.all.current);
  }
  // Whether `size_bytes` more may be taken from the device.
  [[nodiscard]] bool limit_allows(std::uint64_t size_bytes) const noexcept;

  [[nodiscard]] bool limit_is_set() const noexcept { return limit_.has_value(); }
  [[nodiscard]] std::uint64_t limit_value() const noexcept { return limit_.value_or(UINT64_MAX); }

  // Runs the free callbacks, without the lock, and says whether one of them freed something.
  bool run_free_callbacks(std::unique_lock<Mutex>& lock) noexcept;
  // Counts, emits and reports the failure; unlocks before the callbacks.
  AllocationFailure fail(std::unique_lock<Mutex>& lock, const FailedRequest& request) noexcept;

  // --- What a core implements; each takes mutex_ itself where it needs it, unless said ---------

  // 0 when it failed, with the reason; not a Result, which costs more than the rest of the path.
  virtual DeviceAddress do_allocate(std::uint64_t size_bytes,
                                    StreamId stream,
                                    std::optional<AllocationFailure>& failure) = 0;
  virtual device::DeviceResult<void> do_free(DeviceAddress address) = 0;
  virtual device::DeviceResult<void> do_record_stream(DeviceAddress address, StreamId stream) = 0;
  virtual void do_process_events() = 0;
  virtual std::uint64_t do_empty_cache() = 0;
  virtual std::uint64_t do_trim(std::uint64_t keep_bytes) = 0;
  virtual void do_mark_step() {}  // a core whose cached memory stays where it is does nothing
  virtual AllocationResult<std::uint64_t> do_reserve(std::optional<std::uint64_t> size_bytes,
                                                     StreamId stream) = 0;
  virtual void do_begin_allocate_to_pool(PoolId id, StreamFilter filter) = 0;
  virtual void do_end_allocate_to_pool(PoolId id) = 0;
  virtual void do_release_pool(PoolId id) = 0;
  // A share of the device in bytes; nothing when it means no bound.
  [[nodiscard]] virtual std::optional<std::uint64_t> limit_for_fraction(double fraction) const;
  // PyTorch's message for a failure. Called without mutex_.
  [[nodiscard]] virtual std::string pytorch_text(const Account& account,
                                                 const CoreAccount& core,
                                                 const FailedRequest& request) const = 0;

  // These are called with mutex_ held.
  [[nodiscard]] virtual std::optional<BlockInfo> find_block_locked(DeviceAddress address) const = 0;
  [[nodiscard]] virtual CoreAccount core_account(StreamId stream) const = 0;
  [[nodiscard]] virtual std::vector<LiveBlock> live_blocks() const = 0;
  [[nodiscard]] virtual std::vector<SegmentInfo> segments_locked() const = 0;
  [[nodiscard]] virtual std::uint64_t core_fingerprint() const = 0;
  [[nodiscard]] virtual std::optional<std::string> check_core_invariants() const = 0;
  // For a core whose threads allocate without the lock. What they counted by themselves goes into
  // stats_ (note_threads); they are kept from working so, while something is looked at; events have
  // one order, so while blocks are told of, everything takes the lock.
  virtual void fold_threads() const noexcept {}
  virtual void hold_threads() const noexcept {}  // folds too
  virtual void release_threads() const noexcept {}
  virtual void sinks_changed() noexcept {}
  [[nodiscard]] bool tells_of_blocks() const noexcept { return wanted_.meets(kBlockActions); }
  // For a core that ends: nobody is told of it.
  void remove_all_sinks() noexcept;

  device::Device& device_;
  // Apart from what a thread reads that takes no lock.
  alignas(64) mutable Mutex mutex_;
  // Mutable, as running_ is: to look at it is to fold what threads have counted.
  mutable Statistics stats_{};

 private:
  friend class PeakScope;
  struct Callbacks;
  class ThreadsHeld;

  [[nodiscard, gnu::always_inline]] DeviceAddress allocate_or_fail(
      std::uint64_t size_bytes,
      StreamId stream,
      std::optional<AllocationFailure>& failure) noexcept;
  void emit(Action action, const BlockNote& block, std::uint64_t size_bytes) noexcept;
  void tell_sinks(Action action, const BlockNote& block, std::uint64_t size_bytes) noexcept;
  template <bool kSmall>
  void count_alloc(const BlockNote& block) noexcept;
  template <bool kSmall>
  void count_free_requested(const BlockNote& block) noexcept;
  template <bool kSmall>
  void count_free_completed(const BlockNote& block) noexcept;
  [[nodiscard]] Account account_for(const FailedRequest& request,
                                    std::unique_lock<Mutex>& lock,
                                    CoreAccount* core) const;
  [[nodiscard]] std::shared_ptr<const OutOfMemoryReport> report_for(const FailedRequest& request,
                                                                    std::unique_lock<Mutex>& lock);
  void fold_peaks() noexcept;  // of threads, then of scopes

  struct Listener {
    EventSink* sink = nullptr;
    Actions wanted{};
  };
  void note_wishes() noexcept;

  Actions wanted_{};  // by any of the sinks
  std::vector<Listener> sinks_{};
  std::uint64_t sequence_ = 0;
  std::optional<std::uint64_t> limit_{};
  std::uint64_t next_pool_ = 1;
  std::uint64_t misuses_ = 0;
  std::unique_ptr<Callbacks> callbacks_;
  // Peaks since the newest PeakScope opened or was read; folded into every open scope then.
  struct Peaks {
    std::int64_t allocated = 0;
    std::int64_t reserved = 0;
    std::int64_t live = 0;
  };
  mutable Peaks running_{};
  std::vector<class PeakScope*> scopes_{};
};

// The peaks between its construction and now, whatever else is reset or nested.
//
//   PeakScope scope(allocator);
//   step();
//   log(scope.peak_allocated());
class PeakScope {
 public:
  explicit PeakScope(Allocator& allocator);
  ~PeakScope();
  PeakScope(const PeakScope&) = delete;
  PeakScope& operator=(const PeakScope&) = delete;

  [[nodiscard]] std::uint64_t peak_allocated() const;
  [[nodiscard]] std::uint64_t peak_reserved() const;
  [[nodiscard]] std::uint64_t peak_live() const;

 private:
  friend class Allocator;
  [[nodiscard]] Allocator::Peaks read() const;

  Allocator& allocator_;
  Allocator::Peaks peaks_{};
};

}  // namespace headroom::memory
