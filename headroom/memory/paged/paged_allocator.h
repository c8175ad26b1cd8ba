// PagedAllocator: our own. It takes little more memory than the pages that hold something.
//
// Each stream has arenas: long ranges of addresses in which blocks are placed by best fit, wherever
// pages of physical memory are mapped. When no hole is large enough, a window of addresses is
// chosen that lacks the fewest pages, and free pages of other holes are mapped there a second time.
// That waits for nothing, because the old mapping may stay until nobody uses it. New pages are
// created only while reserved is within a cushion of the most that was ever live, and where no free
// page can be moved. types.h has the words and a picture, docs/design/2026-11-15-paged-allocator.md
// the reasons.
//
//   PagedAllocator allocator(device);
//   DeviceAddress block = allocator.allocate(3_GiB);
//   allocator.bound();      // reserved <= live pages + slab residue + cushion, term by term
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/core.h"
#include "headroom/memory/paged/paged_options.h"
#include "headroom/memory/paged/types.h"

namespace headroom::memory {

namespace internal {
class FreeBins;
struct PageArena;
struct PagedBlock;
struct PagedPool;
struct PagedState;
struct SlabBlock;
struct Sleeper;
struct Sleepers;
struct StreamArenas;
}  // namespace internal

class PagedAllocator final : public AllocatorCore {
 public:
  // The device outlives the allocator and has virtual memory. Throws InvalidArgument for sizes
  // that make no sense and for a device without virtual memory.
  explicit PagedAllocator(device::Device& device, PagedOptions options = {});
  // Gives everything back, blocks that are still held included.
  ~PagedAllocator() override;

  [[nodiscard]] const PagedOptions& options() const noexcept;
  [[nodiscard]] PagedBound bound() const;

 protected:
  DeviceAddress do_allocate(std::uint64_t size_bytes,
                            StreamId stream,
                            std::optional<AllocationFailure>& failure) override;
  device::DeviceResult<void> do_free(DeviceAddress address) override;
  device::DeviceResult<void> do_record_stream(DeviceAddress address, StreamId stream) override;
  void do_process_events() override;
  std::uint64_t do_empty_cache(PoolId pool) override;
  std::uint64_t do_trim(std::uint64_t keep_bytes) override;
  void do_mark_step() override;
  AllocationResult<std::uint64_t> do_reserve(std::optional<std::uint64_t> size_bytes,
                                             StreamId stream) override;
  void do_configure(const AllocatorChoice& wanted) override;
  void do_begin_allocate_to_pool(PoolId id, StreamFilter filter) override;
  void do_end_allocate_to_pool(PoolId id) override;
  void do_set_pool_source(PoolId id, std::shared_ptr<const SegmentSource> source) override;
  PoolChange do_restore_pool(PoolId id, std::span<const BlockInfo> blocks) override;
  SleepChange do_sleep(std::string_view scope, SleepContents contents) override;
  AllocationResult<SleepChange> do_wake(std::string_view scope) override;
  [[nodiscard]] AllocatorChoice core_settings() const override;
  void captures_changed() noexcept override;
  [[nodiscard]] std::optional<BlockInfo> find_block_locked(DeviceAddress address) const override;
  [[nodiscard]] std::optional<BlockPlace> locate_locked(DeviceAddress address) const override;
  [[nodiscard]] std::vector<PageAt> pages_of_locked(DeviceAddress address) const override;
  [[nodiscard]] internal::PoolUse* find_pool(PoolId id) const noexcept override;
  void make_pool(PoolId id) override;
  [[nodiscard]] CoreAccount core_account(StreamId stream) const override;
  [[nodiscard]] std::vector<LiveBlock> live_blocks() const override;
  [[nodiscard]] std::vector<SegmentInfo> segments_locked() const override;
  [[nodiscard]] std::uint64_t core_fingerprint() const override;
  [[nodiscard]] std::optional<std::string> check_core_invariants() const override;
  void fold_threads() const noexcept override;
  void pause_threads() const noexcept override;
  void resume_threads() const noexcept override;
  void sinks_changed() noexcept override;

 private:
  using Block = internal::PagedBlock;
  using PageArena = internal::PageArena;

  // One request on its way.
  struct Request {
    std::uint64_t asked = 0;
    std::uint64_t rounded = 0;
    StreamId stream = StreamId::kDefault;
    internal::ArenaKind kind{};
    internal::PagedPool* pool = nullptr;  // a private one
  };
  // A place for a request: `at` in a hole.
  struct Place {
    Block* hole = nullptr;
    DeviceAddress at = 0;
    device::DeviceStatus status{};  // where the device failed, not for want of memory
    bool has_failed = false;
    bool has_loans = false;  // its ends are parts of pages in use elsewhere

    [[nodiscard]] bool is_found() const noexcept { return hole != nullptr; }
  };

  // Whether pages came back for all of some sleeping blocks, and why not.
  struct Woken {
    bool is_done = false;
    bool has_failed = false;  // the device did, not for want of memory
    device::DeviceStatus status{};
    SleepChange change{};
  };

  class Host;      // in paged/internal/paged_state.h
  class Stitcher;  // in paged/stitch.cpp

  // All of these require mutex_. Placing, in paged/allocate.cpp:
  void prepare();
  [[nodiscard]] internal::ArenaKind kind_for(std::uint64_t rounded) const noexcept;
  [[nodiscard]] bool is_worth_large_pages(std::uint64_t rounded) const noexcept;
  [[nodiscard]] DeviceAddress allocate_small(std::uint64_t size_bytes, StreamId stream);
  [[nodiscard]] DeviceAddress allocate_kept(std::uint64_t size_bytes, StreamId stream) noexcept;
  void emit_small(DeviceAddress address,
                  std::uint64_t size_bytes,
                  StreamId stream,
                  AllocationContext context) noexcept;
  // Apart from do_allocate, so that what takes no lock saves no registers for it.
  [[gnu::noinline]] DeviceAddress allocate_locked(std::uint64_t size_bytes,
                                                  StreamId stream,
                                                  std::optional<AllocationFailure>& failure);
  [[nodiscard]] DeviceAddress allocate_otherwise(std::unique_lock<Mutex>& lock,
                                                 const Request& request,
                                                 std::optional<AllocationFailure>& failure);
  [[nodiscard]] Block* find_backed(const Request& request);
  [[nodiscard]] Place place(std::unique_lock<Mutex>& lock, const Request& request);
  [[nodiscard]] Place place_in_pool(std::unique_lock<Mutex>& lock,
                                    internal::PagedPool& pool,
                                    const Request& request);
  [[nodiscard]] Block* find_in_failure_pools(const Request& request);
  [[nodiscard]] bool takes_whole(const Block& hole) const noexcept;
  [[nodiscard]] static Place at_front(Block& block) noexcept;
  Block& take(const Request& request, Block& hole, DeviceAddress at);
  DeviceAddress hand_out(const Request& request, Block& hole, DeviceAddress at);
  // Backing addresses, in paged/stitch.cpp:
  [[nodiscard]] Place stitch(const Request& request);
  [[nodiscard]] Place stitch_within(const Request& request, bool in_cushion);
  [[nodiscard]] Place overflow(const Request& request, PageArena* other, bool may_waste);
  // Arenas of streams, in paged/streams.cpp:
  [[nodiscard]] device::DeviceResult<PageArena*> arena_for(StreamId stream,
                                                           internal::ArenaKind kind);
  [[nodiscard]] internal::StreamArenas* replace_gone_stream(StreamId stream);
  [[nodiscard]] bool leave_arenas(internal::StreamArenas& arenas);
  [[nodiscard]] Place fit_better(const Request& request, const Block& hole);
  [[nodiscard]] PageArena* larger_arena(PageArena& own, const Request& request);
  [[nodiscard]] DeviceAddress take_slab_page(StreamId stream);
  void give_slab_page(DeviceAddress page) noexcept;
  void settle_budget();
  void forget_request(std::uint64_t peak_before);
  // Freeing and giving back, in paged/release.cpp:
  [[gnu::noinline]] device::DeviceResult<void> free_small_locked(DeviceAddress address,
                                                                 bool has_begun);
  [[gnu::noinline]] device::DeviceResult<void> free_locked(DeviceAddress address);
  [[nodiscard]] Block* find_held(DeviceAddress address);
  void choose_magazines() noexcept;
  void complete_free(Block& block);
  void give_back(Block& block);
  void process_pending();
  void wait_for_pending();
  std::uint64_t release_cached(std::uint64_t keep_bytes);
  void release_pools(std::optional<PoolId> only = std::nullopt);
  [[nodiscard]] bool is_pool_in_use(const internal::PagedPool& pool) const;
  // Pools that are restored, or have memory of somebody else, in paged/pools.cpp:
  [[nodiscard]] PageArena* grow_from_source(std::unique_lock<Mutex>& lock,
                                            internal::PagedPool& pool,
                                            StreamId stream,
                                            internal::FreeBins& free,
                                            std::uint64_t size_bytes);
  void return_segments(std::unique_lock<Mutex>& lock);
  [[nodiscard]] Block* find_in_pool(PoolId id, DeviceAddress address) const;
  void hand_out_at(const Request& request, Block& hole, DeviceAddress at);
  void trim_when_idle();
  // Blocks that sleep, in paged/sleep.cpp and paged/wake.cpp:
  void refuse_capture(const char* call) const;
  void add_blocks_in(std::string_view scope, internal::Sleepers& falling) const;
  void add_slabs_in(std::string_view scope, internal::Sleepers& falling) const;
  void wait_for_users(const internal::Sleepers& falling);
  void keep_contents(internal::Sleepers& falling, SleepContents contents);
  SleepChange fall_asleep(internal::Sleepers& falling) noexcept;
  void give_back_sleeping() noexcept;
  [[nodiscard]] Woken wake_all(const std::vector<internal::Sleeper*>& sleepers);
  void bring_back(const std::vector<Block*>& blocks, Woken& woken);
  void make_room_for(std::uint64_t missing_bytes);
  void restore(const std::vector<internal::Sleeper*>& sleepers, Woken& woken);
  void awake(const std::vector<internal::Sleeper*>& sleepers) noexcept;
  template <class Function>  // in paged/internal/paged_state.h
  static void for_each_record(const internal::Sleeper& sleeper, Function&& function);
  void count_slab_page(bool is_taken) noexcept;
  device::DeviceResult<void> free_sleeper(DeviceAddress address);
  [[nodiscard]] static BlockRecord record_of(const Block& block) noexcept;
  [[nodiscard]] static BlockRecord record_of(const internal::SlabBlock& block) noexcept;
  [[nodiscard]] std::uint64_t live_pages_bytes() const;
  [[nodiscard]] PagedBound bound_locked() const;

  // Read by every call that takes no lock: apart from what changes with the lock held.
  alignas(64) std::unique_ptr<internal::PagedState> state_;
  std::unique_ptr<Host> host_;  // what state_ calls
};

}  // namespace headroom::memory
