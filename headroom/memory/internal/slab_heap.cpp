#include "headroom/memory/internal/slab_heap.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/memory/internal/slab_lists.h"

namespace headroom::memory::internal {
namespace {

std::uint64_t next_heap_id() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The first run of `count` free granules; kPageGranules when there is none.
std::size_t find_granules(std::uint32_t free, std::size_t count) noexcept {
  std::uint32_t starts = free;
  for (std::size_t i = 1; i < count; ++i) starts &= free >> i;
  return static_cast<std::size_t>(std::countr_zero(starts));
}

// The fullest page that has the granules: the others get a chance to run empty. It is looked for
// among some only, so that a slab costs the same however many pages there are.
SlabPage* fullest_with(SlabPage* pages, std::size_t granules) noexcept {
  constexpr int kMostLookedAt = 32;
  SlabPage* best = nullptr;
  int looked_at = 0;
  for (SlabPage* page = pages; page != nullptr && looked_at < kMostLookedAt; page = page->next) {
    ++looked_at;
    if (best != nullptr &&
        std::popcount(best->free_granules) <= std::popcount(page->free_granules)) {
      continue;
    }
    if (find_granules(page->free_granules, granules) < kPageGranules) best = page;
  }
  return best;
}

}  // namespace

SlabHeap::SlabHeap(device::Device& device, Mutex& mutex, SlabPages& pages)
    : id_(next_heap_id()),
      mode_(device.tracks_blocks() ? kTracked : Mode{0}),
      device_(device),
      mutex_(mutex),
      pages_(pages),
      link_(std::make_shared<HeapLink>()) {
  link_->heap = this;
}

void SlabHeap::close() noexcept {
  mode_.fetch_or(kOff, std::memory_order_relaxed);
  const std::lock_guard lock(link_->mutex);
  link_->heap = nullptr;
}

void SlabHeap::set_region(DeviceAddress base, std::uint64_t size_bytes) {
  HEADROOM_CHECK(region_bytes_.load() == 0 && base % kSlabPageBytes == 0,
                 "the region of the slabs is set once, and aligned to their pages");
  chunks_ = std::make_unique<std::atomic<Chunk*>[]>((size_bytes + kChunkBytes - 1) / kChunkBytes);
  region_base_.store(base, std::memory_order_relaxed);
  region_bytes_.store(size_bytes, std::memory_order_release);
}

// --- Pages and slabs -----------------------------------------------------------------------------

// The page's description, made when the address is first seen.
SlabPage& SlabHeap::page_at(DeviceAddress address) {
  HEADROOM_CHECK(owns(address) && address % kSlabPageBytes == 0,
                 "a slab page lies in the region, aligned to its size");
  const std::uint64_t offset = address - region_base_.load(std::memory_order_relaxed);
  std::atomic<Chunk*>& chunk = chunks_[offset / kChunkBytes];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    owned_chunks_.push_back(std::make_unique<Chunk>());
    chunk.store(owned_chunks_.back().get(), std::memory_order_release);
  }
  std::atomic<SlabPage*>& entry =
      chunk.load(std::memory_order_relaxed)->pages[offset % kChunkBytes / kSlabPageBytes];
  if (entry.load(std::memory_order_relaxed) == nullptr) {
    owned_pages_.push_back(std::make_unique<SlabPage>());
    owned_pages_.back()->address = address;
    entry.store(owned_pages_.back().get(), std::memory_order_release);
  }
  return *entry.load(std::memory_order_relaxed);
}

SlabPage* SlabHeap::take_page(StreamSlabs& slabs) {
  if (slabs.spare != nullptr) return std::exchange(slabs.spare, nullptr);
  const DeviceAddress address = pages_.take_slab_page(slabs.stream);
  if (address == 0) return nullptr;
  try {
    SlabPage& page = page_at(address);
    page.owner = &slabs;
    page.stream.store(slabs.stream, std::memory_order_relaxed);
    page_bytes_ += kSlabPageBytes;
    return &page;
  } catch (...) {  // No host memory to describe it.
    pages_.give_slab_page(address);
    throw;
  }
}

void SlabHeap::give_page(SlabPage& page) noexcept {
  page.owner = nullptr;
  page_bytes_ -= kSlabPageBytes;
  pages_.give_slab_page(page.address);
}

Slab* SlabHeap::make_slab(StreamSlabs& slabs, std::size_t size_class, Magazines* magazines) {
  const SizeClass& kind = kClasses[size_class];
  SlabPage* page = fullest_with(slabs.with_free_granules, kind.slab_granules);
  if (page == nullptr && magazines != nullptr && magazines->cached_bytes() > 0) {
    // Before a page is taken, what this thread keeps of other sizes goes back: that may empty a
    // slab.
    magazines->spill_all([this](const SlabSlot& slot) { put_block(slot); });
    page = fullest_with(slabs.with_free_granules, kind.slab_granules);
  }
  if (page == nullptr) {
    page = take_page(slabs);
    if (page == nullptr) return nullptr;
    link_in(slabs.with_free_granules, *page);
  }
  const std::size_t first = find_granules(page->free_granules, kind.slab_granules);
  page->free_granules &= ~granule_mask(first, kind.slab_granules);
  if (page->free_granules == 0) unlink_from(slabs.with_free_granules, *page);
  std::fill_n(
      page->first_granule.begin() + first, kind.slab_granules, static_cast<std::uint8_t>(first));

  Slab& slab = page->slabs[first];
  slab = {.page = page,
          .address = page->address + first * kGranuleBytes,
          .size_class = static_cast<std::uint8_t>(size_class)};
  for (std::size_t i = 0; i < kind.slab_blocks; ++i) slab.put(i);
  link_in(slabs.with_free_blocks[size_class], slab);
  return &slab;
}

// Its blocks are all free. An empty page goes back to the core, except for one a stream.
void SlabHeap::drop_slab(Slab& slab) noexcept {
  SlabPage& page = *slab.page;
  StreamSlabs& slabs = *page.owner;
  unlink_from(slabs.with_free_blocks[slab.size_class], slab);
  if (page.free_granules == 0) link_in(slabs.with_free_granules, page);
  page.free_granules |= granule_mask((slab.address - page.address) / kGranuleBytes,
                                     kClasses[slab.size_class].slab_granules);
  slab.page = nullptr;
  if (!page.is_empty()) return;
  unlink_from(slabs.with_free_granules, page);
  if (slabs.spare == nullptr) {
    slabs.spare = &page;
  } else {
    give_page(page);
  }
}

SlabSlot SlabHeap::take_block(Slab& slab) noexcept {
  const std::uint64_t size_bytes = kClasses[slab.size_class].block_bytes;
  const DeviceAddress address = slab.address + slab.take() * size_bytes;
  if (slab.free_blocks == 0) {
    unlink_from(slab.page->owner->with_free_blocks[slab.size_class], slab);
  }
  taken_bytes_ += size_bytes;
  return {.address = address, .word = &slab.page->word_of(address)};
}

void SlabHeap::put_block(const SlabSlot& slot) noexcept {
  SlabPage& page = *place_of(slot.address).page;
  Slab& slab = page.slab_of(slot.address);
  const SizeClass& kind = kClasses[slab.size_class];
  slot.word->store(0, std::memory_order_relaxed);
  if (slab.free_blocks == 0) link_in(page.owner->with_free_blocks[slab.size_class], slab);
  slab.put(slab.index_of(slot.address));
  taken_bytes_ -= kind.block_bytes;
  if (slab.free_blocks == kind.slab_blocks) drop_slab(slab);
}

// --- Blocks --------------------------------------------------------------------------------------

// Most requests come from the stream of the one before.
inline StreamSlabs& SlabHeap::slabs_of(StreamId stream) {
  if (last_slabs_ == nullptr || last_slabs_->stream != stream) [[unlikely]] {
    last_slabs_ = &streams_[stream];
    last_slabs_->stream = stream;
  }
  return *last_slabs_;
}

void SlabHeap::notify_allocated(DeviceAddress address,
                                std::uint64_t size_bytes,
                                StreamId stream) const noexcept {
  device_.block_allocated(address, size_bytes, stream);
}

void SlabHeap::notify_freed(DeviceAddress address,
                            std::uint64_t size_bytes,
                            StreamId stream) const noexcept {
  device_.block_freed(address, size_bytes, stream);
}

DeviceAddress SlabHeap::hand_out(const SlabSlot& slot,
                                 std::uint64_t size_bytes,
                                 StreamId stream,
                                 AllocationContext context) noexcept {
  const std::size_t size_class = size_class_of(size_bytes);
  slot.word->store(SlotWord::held(size_class, size_bytes, context).bits(),
                   std::memory_order_relaxed);
  if (is(kTracked)) notify_allocated(slot.address, kClasses[size_class].block_bytes, stream);
  return slot.address;
}

DeviceAddress SlabHeap::allocate_kept(std::uint64_t size_bytes,
                                      StreamId stream,
                                      AllocationContext context) noexcept {
  if (is(kOff)) return 0;
  const LastUsed* const used = use_magazines(id_, stream);
  if (used == nullptr) return 0;
  Shelf& shelf = used->magazines->shelf(size_class_of(size_bytes));
  return shelf.is_empty() ? 0 : hand_out(used->magazines->pop(shelf), size_bytes, stream, context);
}

DeviceAddress SlabHeap::allocate(std::uint64_t size_bytes,
                                 StreamId stream,
                                 AllocationContext context) {
  enter();
  const std::size_t size_class = size_class_of(size_bytes);
  StreamSlabs& slabs = slabs_of(stream);
  Magazines* const magazines = own_magazines(stream);
  SlabSlot slot{};
  if (magazines != nullptr && !magazines->shelf(size_class).is_empty()) {
    slot = magazines->pop(magazines->shelf(size_class));
  } else {
    Slab* slab = slabs.with_free_blocks[size_class];
    if (slab == nullptr) slab = make_slab(slabs, size_class, magazines);
    if (slab == nullptr) return 0;
    slot = take_block(*slab);
    if (magazines != nullptr) refill(*magazines, slabs, size_class);
  }
  return hand_out(slot, size_bytes, stream, context);
}

std::optional<SlabBlock> SlabHeap::free(DeviceAddress address) noexcept {
  const Place place = place_of(address);
  if (place.word == nullptr) return std::nullopt;
  std::uint64_t bits = place.word->load(std::memory_order_relaxed);
  const SlotWord word(bits);
  if (!word.is_held() || !place.word->compare_exchange_strong(bits, word.being_freed().bits())) {
    return std::nullopt;
  }
  return finish_free(address);
}

SlabBlock SlabHeap::finish_free(DeviceAddress address) noexcept {
  enter();
  const Place place = place_of(address);
  const SlotWord word(place.word->load(std::memory_order_relaxed));
  place.word->store(SlotWord::cached().bits(), std::memory_order_relaxed);
  const SlabBlock block = describe(address, *place.page, word);
  if (is(kTracked)) notify_freed(address, block.size_bytes, block.stream);
  const SlabSlot slot{.address = address, .word = place.word};
  if (Magazines* const magazines = own_magazines(block.stream)) {
    Shelf& shelf = magazines->shelf(word.size_class());
    make_room(*magazines, shelf);
    magazines->push(shelf, slot);
  } else {
    put_block(slot);
  }
  return block;
}

std::optional<SlabBlock> SlabHeap::find(DeviceAddress address) const noexcept {
  const Place place = place_of(address);
  if (place.word == nullptr) return std::nullopt;
  const SlotWord word(place.word->load(std::memory_order_relaxed));
  if (word.state() != SlotState::kHeld && word.state() != SlotState::kPending) return std::nullopt;
  return describe(address, *place.page, word);
}

DeviceAddress SlabHeap::block_around(DeviceAddress address) const noexcept {
  SlabPage* const page = place_of(round_down(address, kMinBlockBytes)).page;
  if (page == nullptr || page->owner == nullptr) return 0;
  const std::size_t granule = (address - page->address) / kGranuleBytes;
  if ((page->free_granules >> granule & 1U) != 0) return 0;
  const Slab& slab = page->slab_of(address);
  return slab.address + slab.index_of(address) * kClasses[slab.size_class].block_bytes;
}

bool SlabHeap::mark_used_elsewhere(DeviceAddress address) noexcept {
  enter();
  const Place place = place_of(address);
  if (place.word == nullptr) return false;
  std::uint64_t bits = place.word->load(std::memory_order_relaxed);
  return SlotWord(bits).is_held() &&
         place.word->compare_exchange_strong(bits, SlotWord(bits).used_elsewhere().bits());
}

std::optional<SlabBlock> SlabHeap::mark_pending(DeviceAddress address) noexcept {
  enter();
  const Place place = place_of(address);
  if (place.word == nullptr) return std::nullopt;
  std::uint64_t bits = place.word->load(std::memory_order_relaxed);
  const SlotWord pending = SlotWord(bits).pending();
  if (!SlotWord(bits).is_held() || !place.word->compare_exchange_strong(bits, pending.bits())) {
    return std::nullopt;
  }
  return describe(address, *place.page, pending);
}

std::optional<SlabBlock> SlabHeap::complete(DeviceAddress address) noexcept {
  const std::optional<SlabBlock> block = find(address);
  if (!block || !block->is_pending) return std::nullopt;
  if (is(kTracked)) notify_freed(address, block->size_bytes, block->stream);
  put_block({.address = address, .word = place_of(address).word});
  return block;
}

// --- Magazines -----------------------------------------------------------------------------------

// A thread comes with the lock. While one thread alone has a cache and nobody else has come, it
// works without bounds on its tally. The first other thread ends this, and goes on only when the
// owner cannot fail to know.
ThreadCache* SlabHeap::enter() noexcept {
  ThreadCache* const own = find_thread_cache(id_);
  const bool has_others = caches_.size() > (own != nullptr ? 1U : 0U);
  if (has_others && !is(kShared)) {
    mode_.fetch_or(kShared, std::memory_order_relaxed);
    fold_all();
  }
  return own;
}

// Made when a thread first needs them; null when magazines are off, when the thread is ending, and
// without host memory.
Magazines* SlabHeap::own_magazines(StreamId stream) noexcept {
  if (is(kOff)) return nullptr;
  if (const LastUsed* const used = use_magazines(id_, stream)) return used->magazines;
  try {
    ThreadCache* cache = find_thread_cache(id_);
    if (cache == nullptr) {
      const auto made = std::make_shared<ThreadCache>();
      caches_.reserve(caches_.size() + 1);
      if (!add_thread_cache(id_, link_, made)) return nullptr;
      caches_.push_back(made);
      cache = made.get();
      if (pauses_ > 0) cache->pause_owner();
    }
    const auto idle = std::ranges::find_if(cache->streams, [this](const auto& magazines) {
      return !streams_.contains(magazines->stream());  // forgotten
    });
    if (idle != cache->streams.end()) {
      (*idle)->serve(stream);
    } else {
      cache->streams.push_back(std::make_unique<Magazines>(stream));
    }
    const LastUsed* const used = use_magazines(id_, stream);
    return used != nullptr ? used->magazines : nullptr;
  } catch (...) {
    return nullptr;
  }
}

void SlabHeap::forget_stream(StreamId stream) noexcept {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  pause_threads();
  for (const auto& cache : caches_) {
    Magazines* const magazines = cache->find(stream);
    if (magazines == nullptr) continue;
    magazines->start_over([this](const SlabSlot& slot) { put_block(slot); });
  }
  resume_threads();
  StreamSlabs& slabs = found->second;
  if (slabs.spare != nullptr) give_page(*std::exchange(slabs.spare, nullptr));
  const bool has_pages =
      std::ranges::any_of(owned_pages_, [&](const auto& page) { return page->owner == &slabs; });
  if (has_pages) return;  // blocks are held there
  if (last_slabs_ == &slabs) last_slabs_ = nullptr;
  streams_.erase(found);
}

// Blocks to keep come from slabs that have free ones: nothing new is taken for them.
void SlabHeap::refill(Magazines& magazines, StreamSlabs& slabs, std::size_t size_class) noexcept {
  Shelf& shelf = magazines.shelf(size_class);
  for (std::size_t i = Magazines::next_fetch(shelf); i > 0; --i) {
    Slab* const slab = slabs.with_free_blocks[size_class];
    if (slab == nullptr || !magazines.has_room(shelf)) return;
    const SlabSlot slot = take_block(*slab);
    slot.word->store(SlotWord::cached().bits(), std::memory_order_relaxed);
    magazines.push(shelf, slot);
  }
}

// For one block more: half of its class goes back, or half of everything where all classes are too
// much together.
void SlabHeap::make_room(Magazines& magazines, Shelf& shelf) noexcept {
  const auto back = [this](const SlabSlot& slot) { put_block(slot); };
  if (shelf.is_full()) magazines.spill(shelf, shelf.count() / 2, back);
  if (!magazines.has_room(shelf)) magazines.spill_half(back);
}

void SlabHeap::drain(ThreadCache& cache) noexcept {
  for (const auto& magazines : cache.streams) {
    magazines->spill_all([this](const SlabSlot& slot) { put_block(slot); });
  }
}

void SlabHeap::enable_magazines(bool is_enabled) noexcept {
  if (is_enabled) {
    mode_.fetch_and(static_cast<Mode>(~kOff), std::memory_order_relaxed);
    return;
  }
  mode_.fetch_or(kOff, std::memory_order_relaxed);
  pause_threads();
  for (const auto& cache : caches_) drain(*cache);
  resume_threads();
}

void SlabHeap::require_lock(bool is_required) noexcept {
  if (!is_required) {
    mode_.fetch_and(static_cast<Mode>(~kLocked), std::memory_order_relaxed);
    return;
  }
  mode_.fetch_or(kLocked, std::memory_order_relaxed);
  fold_all();
}

void SlabHeap::fold(ThreadCache& cache) noexcept {
  if (cache.tally.is_empty()) return;
  cache.tally.is_alone = caches_.size() == 1;
  pages_.fold_tally(cache.tally);
  cache.tally = {};
}

void SlabHeap::fold_own_and_mark() noexcept {
  ThreadCache* const cache = enter();
  if (cache != nullptr) fold(*cache);
  // This thread's next calls mix with those that the others have not folded yet.
  static constexpr ThreadTally kNotAlone{.is_alone = false};
  if (caches_.size() > (cache != nullptr ? 1U : 0U)) pages_.fold_tally(kNotAlone);
}

void SlabHeap::fold_all() noexcept {
  pause_threads();
  resume_threads();
}

void SlabHeap::pause_threads() noexcept {
  if (pauses_++ > 0) return;
  for (const auto& cache : caches_) {
    cache->pause_owner();
    fold(*cache);
  }
}

void SlabHeap::resume_threads() noexcept {
  if (--pauses_ > 0) return;
  for (const auto& cache : caches_) cache->resume_owner();
}

void SlabHeap::start_over() noexcept {
  const auto back = [this](const SlabSlot& slot) { put_block(slot); };
  pause_threads();
  for (const auto& cache : caches_) {
    for (const auto& magazines : cache->streams) magazines->start_over(back);
  }
  resume_threads();
}

std::uint64_t SlabHeap::flush() noexcept {
  const std::uint64_t before = page_bytes_;
  pause_threads();
  for (const auto& cache : caches_) drain(*cache);
  resume_threads();
  for (auto& [stream, slabs] : streams_) {
    if (slabs.spare != nullptr) give_page(*std::exchange(slabs.spare, nullptr));
  }
  return before - page_bytes_;
}

void SlabHeap::retire(ThreadCache& cache) noexcept {
  const std::lock_guard lock(mutex_);
  fold(cache);
  drain(cache);
  std::erase_if(caches_, [&](const auto& entry) { return entry.get() == &cache; });
  if (caches_.size() <= 1) {
    mode_.fetch_and(static_cast<Mode>(~kShared), std::memory_order_relaxed);
  }
}

std::uint64_t SlabHeap::cached_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& cache : caches_) {
    for (const auto& magazines : cache->streams) bytes += magazines->cached_bytes();
  }
  return bytes;
}

std::uint64_t SlabHeap::live_bytes() const noexcept { return taken_bytes_ - cached_bytes(); }

}  // namespace headroom::memory::internal
