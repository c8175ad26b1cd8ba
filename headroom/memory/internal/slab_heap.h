// SlabHeap: blocks up to 64 KiB, cut from pages of 2 MiB that a core provides.
//
//   SlabHeap heap(device, mutex, core);
//   heap.set_region(base, size_bytes);
//
//   if (DeviceAddress block = heap.allocate_cached(size, stream, context)) return block;
//   std::unique_lock lock(mutex);   // nothing cached, or the lock is required
//   heap.fold_own();                // first: what this thread counted
//   DeviceAddress block = heap.allocate(size, stream, context);
//   record_alloc({.address = block, .size_bytes = SlabHeap::block_bytes(size), ...});
//
// Threads' tallies count the blocks of magazines; SlabPages::fold_tally adds them to statistics,
// and the core records the others. What moves statistics under the lock calls fold_own() first.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/fingerprint.h"
#include "headroom/base/mutex.h"
#include "headroom/device/device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/internal/magazines.h"
#include "headroom/memory/internal/size_classes.h"
#include "headroom/memory/internal/slab_page.h"
#include "headroom/memory/internal/slab_pages.h"
#include "headroom/memory/internal/thread_tally.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

class SlabHeap {
 public:
  // All three outlive the heap.
  SlabHeap(device::Device& device, Mutex& mutex, SlabPages& pages);
  SlabHeap(const SlabHeap&) = delete;
  SlabHeap& operator=(const SlabHeap&) = delete;
  ~SlabHeap() { close(); }
  // Threads that end no longer come back here. Without the lock, before the core drops its pages.
  void close() noexcept;

  // The addresses that all pages lie in, aligned to the size of a page. Once, before the first.
  void set_region(DeviceAddress base, std::uint64_t size_bytes);
  [[nodiscard]] bool has_region() const noexcept { return region_bytes_.load() != 0; }

  // The size of the block that a request gets, from 1 to kSlabMaxBytes.
  [[nodiscard]] static std::uint64_t block_bytes(std::uint64_t size_bytes) noexcept {
    return kClasses[size_class_of(size_bytes)].block_bytes;
  }

  // --- Without the lock -----------------------------------------------------------------------

  [[nodiscard]] bool owns(DeviceAddress address) const noexcept {
    const std::uint64_t size = region_bytes_.load(std::memory_order_acquire);
    return offset_of(address) < size;
  }
  // These two are in internal/slab_cached.h. 0 when the lock is needed: no such block in the
  // magazine, or magazines are off, or the lock is required.
  [[nodiscard]] DeviceAddress allocate_cached(std::uint64_t size_bytes,
                                              StreamId stream,
                                              AllocationContext context) noexcept;
  enum class Freed : std::uint8_t {
    kDone,
    kBegun,      // the magazine is full, or may not be used so: finish_free, with the lock
    kNeedsLock,  // free, with the lock: other streams use the block, or this one has no magazines
    kUnknown,    // no block that is held starts there
    kElsewhere,  // not an address of the region
  };
  Freed free_cached(DeviceAddress address) noexcept;

  // --- With the lock --------------------------------------------------------------------------

  // The block that allocate_cached would have given, had the lock not been required: 0 when this
  // thread keeps no such block.
  [[nodiscard]] DeviceAddress allocate_kept(std::uint64_t size_bytes,
                                            StreamId stream,
                                            AllocationContext context) noexcept;
  // 0 when the core has no page. Throws std::bad_alloc, and then has changed nothing.
  [[nodiscard]] DeviceAddress allocate(std::uint64_t size_bytes,
                                       StreamId stream,
                                       AllocationContext context);
  // Takes the block back; the core has dealt with its other streams. Nothing: no block that is
  // held starts there.
  std::optional<SlabBlock> free(DeviceAddress address) noexcept;
  // The same for a block whose free this thread has begun.
  SlabBlock finish_free(DeviceAddress address) noexcept;
  // A block that is held or pending.
  [[nodiscard]] std::optional<SlabBlock> find(DeviceAddress address) const noexcept;
  // Where a block that holds the byte would start; 0 where no slab is.
  [[nodiscard]] DeviceAddress block_around(DeviceAddress address) const noexcept;
  // Another stream uses a held block: its free needs the lock. Says whether it is one.
  bool mark_used_elsewhere(DeviceAddress address) noexcept;
  // A held block was freed but is still in use; complete() takes it back. Says whether it was held.
  std::optional<SlabBlock> mark_pending(DeviceAddress address) noexcept;
  std::optional<SlabBlock> complete(DeviceAddress address) noexcept;

  // Disabling gives back what threads had cached, and every call takes the lock from then on.
  void enable_magazines(bool is_enabled) noexcept;
  // Threads keep their magazines, and give and take the same blocks, but with the lock: nothing
  // happens without it from now on.
  void require_lock(bool is_required) noexcept;
  // This thread's tally, into the statistics.
  void fold_own() noexcept {
    if (caches_.empty()) return;
    const bool is_only = t_last_used.heap == id_ && caches_.size() == 1;
    if (!is_only || !t_last_used.cache->tally.is_empty()) fold_own_and_mark();
  }
  void fold_all() noexcept;
  // Folds all tallies. Until resume_threads() every thread has to take the lock. Pairs may nest.
  void pause_threads() noexcept;
  void resume_threads() noexcept;
  // Gives back what threads had cached, and forgets what they used to ask for.
  void start_over() noexcept;
  // Gives back what threads had cached, and all pages that are empty then. Returns their bytes.
  std::uint64_t flush() noexcept;
  // The stream is gone: what threads keep of it goes back, and pages that are empty then.
  void forget_stream(StreamId stream) noexcept;

  [[nodiscard]] std::uint64_t page_bytes() const noexcept { return page_bytes_; }
  // Of blocks held or pending. Near while threads work without the lock.
  [[nodiscard]] std::uint64_t live_bytes() const noexcept;
  [[nodiscard]] std::uint64_t cached_bytes() const noexcept;
  // Calls function(SlabBlock) for every block that is held or pending. In internal/slab_walk.h.
  template <class Function>
  void for_each_block(Function&& function) const;
  // A segment for every page, tiled by its blocks, by address.
  [[nodiscard]] std::vector<SegmentInfo> segments() const;
  // All that decides which block the next request of each thread gets. With threads paused.
  void add_to(Fingerprint& print) const;
  // A sentence about the first broken invariant, or nothing. With threads paused.
  [[nodiscard]] std::optional<std::string> check() const;

  // For a thread that ends; takes the lock.
  void retire(ThreadCache& cache) noexcept;

 private:
  friend class SlabSleep;

  static constexpr std::uint64_t kChunkBytes = 1_GiB;
  struct Chunk {
    std::array<std::atomic<SlabPage*>, kChunkBytes / kSlabPageBytes> pages{};
  };
  // Flags that every call without the lock has to read, in one byte.
  using Mode = std::uint8_t;
  static constexpr Mode kShared = 1;   // several threads may be at work; see enter()
  static constexpr Mode kOff = 2;      // magazines are
  static constexpr Mode kTracked = 4;  // the device is told of blocks
  static constexpr Mode kLocked = 8;   // the lock is required
  struct Place {
    SlabPage* page = nullptr;
    Slot* word = nullptr;
  };

  // Ask for region_bytes_ first: it is set last. An address outside has an offset of at least that.
  [[nodiscard]] std::uint64_t offset_of(DeviceAddress address) const noexcept {
    return address - region_base_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] Place place_of(DeviceAddress address) const noexcept {
    return owns(address) ? place_at(offset_of(address)) : Place{};
  }
  [[nodiscard, gnu::always_inline]] Place place_at(std::uint64_t offset) const noexcept;
  [[nodiscard]] static SlabBlock describe(DeviceAddress address,
                                          const SlabPage& page,
                                          SlotWord word) noexcept;
  template <class Function>
  void for_each_page(Function&& function) const;
  template <class Function>
  static void for_each_slab(const SlabPage& page, Function&& function);
  [[nodiscard]] std::optional<std::string> check_page(const SlabPage& page,
                                                      std::uint64_t& taken_bytes) const;
  [[nodiscard]] std::optional<std::string> check_magazines() const;

  [[nodiscard]] StreamSlabs& slabs_of(StreamId stream);
  [[nodiscard]] SlabPage& page_at(DeviceAddress address);
  [[nodiscard]] SlabPage* take_page(StreamSlabs& slabs);
  void give_page(SlabPage& page) noexcept;
  [[nodiscard]] DeviceAddress hand_out(const SlabSlot& slot,
                                       std::uint64_t size_bytes,
                                       StreamId stream,
                                       AllocationContext context) noexcept;
  [[nodiscard]] Slab* make_slab(StreamSlabs& slabs, std::size_t size_class, Magazines* magazines);
  void drop_slab(Slab& slab) noexcept;
  [[nodiscard]] SlabSlot take_block(Slab& slab) noexcept;
  void put_block(const SlabSlot& slot) noexcept;

  // Without the lock, inside the thread's cache. No: magazines are off, or the lock is required,
  // or the tally is to be folded first.
  [[nodiscard]] static bool tally_alloc(Mode mode,
                                        ThreadTally& tally,
                                        const TallyBlock& block) noexcept;
  [[nodiscard]] static bool tally_free(Mode mode,
                                       ThreadTally& tally,
                                       const TallyBlock& block) noexcept;
  [[gnu::cold]] void notify_allocated(DeviceAddress address,
                                      std::uint64_t size_bytes,
                                      StreamId stream) const noexcept;
  [[gnu::cold]] void notify_freed(DeviceAddress address,
                                  std::uint64_t size_bytes,
                                  StreamId stream) const noexcept;
  [[nodiscard]] bool is(Mode flag) const noexcept {
    return (mode_.load(std::memory_order_relaxed) & flag) != 0;
  }
  void fold_own_and_mark() noexcept;
  ThreadCache* enter() noexcept;
  [[nodiscard]] Magazines* own_magazines(StreamId stream) noexcept;
  void refill(Magazines& magazines, StreamSlabs& slabs, std::size_t size_class) noexcept;
  void make_room(Magazines& magazines, Shelf& shelf) noexcept;
  void drain(ThreadCache& cache) noexcept;
  void fold(ThreadCache& cache) noexcept;

  // Every thread reads these and hardly anybody writes them: apart from the fields that change.
  alignas(64) std::atomic<DeviceAddress> region_base_{0};
  std::atomic<std::uint64_t> region_bytes_{0};
  std::unique_ptr<std::atomic<Chunk*>[]> chunks_;
  const std::uint64_t id_;
  std::atomic<Mode> mode_;
  device::Device& device_;
  Mutex& mutex_;
  SlabPages& pages_;
  std::shared_ptr<HeapLink> link_;

  alignas(64) std::map<StreamId, StreamSlabs> streams_{};
  StreamSlabs* last_slabs_ = nullptr;
  std::vector<std::shared_ptr<ThreadCache>> caches_{};
  std::vector<std::unique_ptr<Chunk>> owned_chunks_{};
  std::vector<std::unique_ptr<SlabPage>> owned_pages_{};
  std::uint64_t page_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;  // of blocks that are not in their slabs
  std::uint32_t pauses_ = 0;
};

// The page and the word of an offset where a block may start; nothing elsewhere.
inline SlabHeap::Place SlabHeap::place_at(std::uint64_t offset) const noexcept {
  if (offset % kMinBlockBytes != 0) return {};
  const Chunk* const chunk = chunks_[offset / kChunkBytes].load(std::memory_order_acquire);
  if (chunk == nullptr) return {};
  SlabPage* const page =
      chunk->pages[offset % kChunkBytes / kSlabPageBytes].load(std::memory_order_acquire);
  if (page == nullptr) return {};
  const std::size_t slot = offset % kSlabPageBytes / kMinBlockBytes;
  return {.page = page, .word = &page->words[SlabPage::word_index(slot)]};
}

}  // namespace headroom::memory::internal
