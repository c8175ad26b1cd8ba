// AllocatorCore: a core's side of an allocator: what it implements, and what it may call.
//
// A core decides where blocks lie. It derives from this class, implements the virtual functions,
// and calls the others when something happened: limits and reports are written once.
//   a user calls        Allocator::allocate             allocator.cpp
//   the core places     CachingAllocator::do_allocate   caching/allocate.cpp
//   and says so         AllocatorCore::record_alloc       internal/records.h
//
// `mutex_` guards everything here and in a core. Nothing here allocates from the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/mutex.h"
#include "headroom/memory/allocator.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/config.h"

namespace headroom::memory {

namespace internal {
struct Callbacks;
class KnownStreams;
struct PoolUse;
class Tags;
struct ThreadTally;
}  // namespace internal
class PeakScope;

class AllocatorCore : public Allocator {
 public:
  ~AllocatorCore() override;

 protected:
  explicit AllocatorCore(device::Device& device);

  // --- What a core says -----------------------------------------------------------------------

  // A block, as the record_ functions take it.
  struct BlockRecord {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t requested_bytes = 0;
    StreamId stream = StreamId::kDefault;
    PoolId pool{};
    bool is_small = false;
    AllocationContext context{};
  };
  struct SegmentRecord {
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
  // The core's part of an account, besides the statistics.
  struct CoreAccount {
    std::uint64_t cached_stream_bytes = 0;
    std::uint64_t cached_hard_bytes = 0;
    std::uint64_t cached_soft_bytes = 0;
    std::uint64_t cached_private_bytes = 0;  // of the above, in private pools
    std::uint64_t largest_cached_bytes = 0;
    bool is_expandable = false;
    std::uint64_t page_bytes = 0;  // of pages that move to where they are needed
    std::optional<std::uint64_t> expandable_reserve_bytes{};  // of a segment, where configured
    PyTorchVersion version{};                                 // whose words its failures are in
  };
  struct LiveBlock {
    std::uint64_t requested_bytes = 0;
    std::uint64_t size_bytes = 0;
    AllocationContext context{};
  };

  // --- What a core may call -------------------------------------------------------------------

  // All require mutex_. Inline, in internal/records.h, which a core includes.
  void record_alloc(const BlockRecord& block) noexcept;
  void record_free_requested(const BlockRecord& block) noexcept;
  void record_free_completed(const BlockRecord& block) noexcept;
  void record_segment(Action action, const SegmentRecord& segment) noexcept;
  // The two halves of it, for a core whose physical memory moves between addresses: memory that
  // came or went, and where it is seen.
  void add_to_statistics_segment(bool is_growth, bool is_small, std::uint64_t size_bytes) noexcept;
  void emit_segment(Action action, const SegmentRecord& segment) noexcept;
  // Adds the work of one thread without the lock, all of it in the small pool.
  void record_threads(const internal::ThreadTally& tally) const noexcept;
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept {
    return static_cast<std::uint64_t>(stats_.reserved_bytes.all.current);
  }
  // A stream that the device knows; asked once for each.
  [[nodiscard]] device::DeviceResult<void> check_stream(StreamId stream);
  void trust_stream(StreamId stream);  // without asking
  [[nodiscard]] bool is_released(StreamId stream) const noexcept;
  [[nodiscard]] bool has_capture() const noexcept { return captures_ > 0; }
  [[nodiscard]] bool tells_of_blocks() const noexcept { return wanted_.meets(kBlockActions); }
  class TagScope;  // the tag of the request under way, in internal/tag_scope.h
  [[nodiscard]] Tag tag_of(DeviceAddress block) const;
  // Whether `size_bytes` more may be taken from the device.
  [[nodiscard]] bool limit_allows(std::uint64_t size_bytes) const noexcept;

  [[nodiscard]] bool limit_is_set() const noexcept { return limit_.has_value(); }
  [[nodiscard]] std::uint64_t limit_value() const noexcept { return limit_.value_or(UINT64_MAX); }

  // Runs the free callbacks, without the lock, and says whether one of them freed something.
  bool run_free_callbacks(std::unique_lock<Mutex>& lock);
  // Counts, emits and reports the failure; unlocks before the callbacks.
  AllocationFailure fail(std::unique_lock<Mutex>& lock, const FailedRequest& request) noexcept;
  // The first thing that a core's destructor does: nobody is told of its end, and no capture holds
  // it up. Without mutex_.
  void begin_destruction() noexcept;

  // --- What a core implements; each takes mutex_ itself where it needs it, unless said ---------

  // 0 when it failed, with the reason; not a Result, which costs more than the rest of the path.
  virtual DeviceAddress do_allocate(std::uint64_t size_bytes,
                                    StreamId stream,
                                    std::optional<AllocationFailure>& failure) = 0;
  virtual device::DeviceResult<void> do_free(DeviceAddress address) = 0;
  virtual device::DeviceResult<void> do_record_stream(DeviceAddress address, StreamId stream) = 0;
  virtual void do_process_events() = 0;
  // Of the default pool: all that can be given back.
  virtual std::uint64_t do_empty_cache(PoolId pool) = 0;
  virtual std::uint64_t do_trim(std::uint64_t keep_bytes) = 0;
  virtual void do_mark_step() {}  // a core whose cached memory stays where it is does nothing
  virtual AllocationResult<std::uint64_t> do_reserve(std::optional<std::uint64_t> size_bytes,
                                                     StreamId stream) = 0;
  virtual void do_configure(const AllocatorChoice& wanted) = 0;
  virtual void do_begin_allocate_to_pool(PoolId id, StreamFilter filter) = 0;
  virtual void do_end_allocate_to_pool(PoolId id) = 0;
  virtual void do_set_pool_source(PoolId id, std::shared_ptr<const SegmentSource> source);
  virtual PoolChange do_restore_pool(PoolId id, std::span<const BlockInfo> blocks);
  virtual SleepChange do_sleep(std::string_view scope, SleepContents contents);
  virtual AllocationResult<SleepChange> do_wake(std::string_view scope);
  // A share of the device in bytes; nothing when it means no bound.
  [[nodiscard]] virtual std::optional<std::uint64_t> limit_for_fraction(double fraction) const;

  // These are called with mutex_ held.
  [[nodiscard]] virtual AllocatorChoice core_settings() const = 0;
  virtual void captures_changed() noexcept {}  // has_capture() may answer otherwise
  [[nodiscard]] virtual std::optional<BlockInfo> find_block_locked(DeviceAddress address) const = 0;
  [[nodiscard]] virtual std::optional<BlockPlace> locate_locked(DeviceAddress address) const = 0;
  [[nodiscard]] virtual std::vector<PageAt> pages_of_locked(DeviceAddress address) const;
  // A private pool, null where there is none; a new one, with one user.
  [[nodiscard]] virtual internal::PoolUse* find_pool(PoolId id) const noexcept = 0;
  virtual void make_pool(PoolId id) = 0;
  [[nodiscard]] virtual CoreAccount core_account(StreamId stream) const = 0;
  [[nodiscard]] virtual std::vector<LiveBlock> live_blocks() const = 0;
  [[nodiscard]] virtual std::vector<SegmentInfo> segments_locked() const = 0;
  [[nodiscard]] virtual std::uint64_t core_fingerprint() const = 0;
  [[nodiscard]] virtual std::optional<std::string> check_core_invariants() const = 0;
  // For a core whose threads allocate without the lock. fold_threads() adds the counts of each
  // thread to stats_, by record_threads().
  virtual void fold_threads() const noexcept {}
  // Between these two calls every thread has to take the lock, so that the state can be read.
  virtual void pause_threads() const noexcept {}  // folds too
  virtual void resume_threads() const noexcept {}
  // A sink came or went. While a sink wants block events, every thread takes the lock: events have
  // one order.
  virtual void sinks_changed() noexcept {}

  device::Device& device_;
  // Apart from what a thread reads that takes no lock.
  alignas(64) mutable Mutex mutex_;
  // Mutable, as running_ is: to look at it is to fold what threads have counted.
  mutable Statistics stats_{};

 private:
  friend class Allocator;
  friend class PeakScope;
  // While one lives, every thread has to take the lock. Made with the lock held.
  class ThreadsPaused {
   public:
    explicit ThreadsPaused(const AllocatorCore& core) noexcept : core_(&core) {
      core.pause_threads();
    }
    ~ThreadsPaused() { resume(); }
    ThreadsPaused(const ThreadsPaused&) = delete;
    ThreadsPaused& operator=(const ThreadsPaused&) = delete;
    // Before the lock is let go of.
    void resume() noexcept {
      if (core_ != nullptr) std::exchange(core_, nullptr)->resume_threads();
    }

   private:
    const AllocatorCore* core_;
  };
  struct Listener {
    EventSink* sink = nullptr;
    Actions wanted{};
  };
  // Peaks since the newest PeakScope opened or was read; folded into every open scope then.
  struct Peaks {
    std::int64_t allocated = 0;
    std::int64_t reserved = 0;
    std::int64_t live = 0;
  };

  void emit(Action action, const BlockRecord& block, std::uint64_t size_bytes) noexcept;
  void send_to_sinks(Action action, const BlockRecord& block, std::uint64_t size_bytes) noexcept;
  void update_wanted() noexcept;
  template <bool kSmall>
  void add_to_statistics_alloc(const BlockRecord& block) noexcept;
  template <bool kSmall>
  void add_to_statistics_free_requested(const BlockRecord& block) noexcept;
  template <bool kSmall>
  void add_to_statistics_free_completed(const BlockRecord& block) noexcept;
  [[nodiscard]] Account account_for(const FailedRequest& request,
                                    std::unique_lock<Mutex>& lock,
                                    CoreAccount* core) const;
  [[nodiscard]] std::shared_ptr<const OutOfMemoryReport> report_for(const FailedRequest& request,
                                                                    std::unique_lock<Mutex>& lock);
  void fold_peaks() noexcept;  // of threads, then of scopes
  // Throws InvalidArgument, saying which call it was, where the pool has no user.
  [[nodiscard]] internal::PoolUse& pool_in_use(PoolId id, const char* call) const;
  [[nodiscard]] const Tag* current_tag() const noexcept;
  void add_tags(std::vector<SegmentInfo>& segments) const;

  Actions wanted_{};  // by any of the sinks
  std::vector<Listener> sinks_{};
  std::uint64_t sequence_ = 0;
  std::optional<std::uint64_t> limit_{};
  std::uint64_t next_pool_ = 1;
  std::uint64_t misuses_ = 0;
  int captures_ = 0;
  std::unique_ptr<internal::KnownStreams> known_streams_;
  std::unique_ptr<internal::Callbacks> callbacks_;
  std::unique_ptr<internal::Tags> tags_{};  // null: none are made
  std::atomic<bool> makes_tags_{false};     // the same, without the lock
  mutable Peaks running_{};
  std::vector<PeakScope*> scopes_{};
};

}  // namespace headroom::memory
