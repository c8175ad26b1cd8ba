// Magazines: small blocks that a thread keeps, so that most allocations and frees take no lock.
//
// A thread has one ThreadCache for every heap it uses, with magazines for every stream and a tally
// of what the statistics do not know yet. The owner works in it without the allocator's lock; the
// ladder, and whoever asks for statistics, must be able to empty and read it all the same, whether
// its owner is busy, asleep or blocked for ever. So they agree on who is inside:
//
//   the owner, without the lock       says that it is inside, then looks whether somebody holds the
//                                     cache. If so, it leaves, and takes the lock instead.
//   another thread, with the lock     says that it holds the cache, then waits while the owner is
//                                     inside: some ten nanoseconds, unless it was put to sleep.
//   the owner, with the lock          needs neither: nobody else can be inside.
//
// Each says first and looks then, so one of the two sees the other. That takes a step that no load
// overtakes: an exchange, or the swap of a block's word, which a free needs anyhow. Nobody waits
// for the lock inside a cache, so the two cannot wait for one another.
//
// A thread that frees a block another allocated puts it into its own magazine of the block's
// stream. So frees of other threads' blocks go back in batches too, under the lock, when a magazine
// is full; there is no queue into another thread's cache.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/fingerprint.h"
#include "headroom/memory/internal/size_classes.h"
#include "headroom/memory/internal/slab_page.h"
#include "headroom/memory/internal/thread_tally.h"

namespace headroom::memory::internal {

class SlabHeap;

inline constexpr std::uint64_t kMagazineBytes = 256_KiB;

// The blocks of one class, the one freed last on top: it may still be in a cache of the device.
struct Shelf {
  SlabSlot* next = nullptr;  // where a block would be put
  SlabSlot* first = nullptr;
  SlabSlot* end = nullptr;
  std::uint32_t block_bytes = 0;
  std::uint8_t fetch = 0;  // see Magazines::next_fetch

  [[nodiscard]] bool is_empty() const noexcept { return next == first; }
  [[nodiscard]] bool is_full() const noexcept { return next == end; }
  [[nodiscard]] std::size_t count() const noexcept {
    return static_cast<std::size_t>(next - first);
  }
};

// Of one thread and one stream. Apart from its neighbours by two cache lines, as ThreadCache is:
// processors fetch lines in pairs.
class alignas(128) Magazines {
 public:
  explicit Magazines(StreamId stream) noexcept;
  Magazines(const Magazines&) = delete;
  Magazines& operator=(const Magazines&) = delete;

  [[nodiscard]] StreamId stream() const noexcept { return stream_; }
  // They are empty, and another stream's from now on.
  void serve(StreamId stream) noexcept { stream_ = stream; }
  // Exact while the cache is held; near with the lock alone.
  [[nodiscard]] std::uint64_t cached_bytes() const noexcept {
    return cached_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] Shelf& shelf(std::size_t size_class) noexcept { return shelves_[size_class]; }
  [[nodiscard]] bool has_room(const Shelf& shelf) const noexcept {
    return !shelf.is_full() && cached_bytes() + shelf.block_bytes <= kMagazineBytes;
  }
  [[nodiscard]] SlabSlot pop(Shelf& shelf) noexcept {
    set_cached_bytes(cached_bytes() - shelf.block_bytes);
    return *--shelf.next;
  }
  void push(Shelf& shelf, const SlabSlot& slot) noexcept {
    *shelf.next++ = slot;
    set_cached_bytes(cached_bytes() + shelf.block_bytes);
  }
  // How many blocks to fetch besides the one that is wanted, when a class has run out: none at
  // first, more each time, up to half a magazine; fewer when blocks had to be given back. A class
  // that is seldom asked for fetches little.
  [[nodiscard]] static std::size_t next_fetch(Shelf& shelf) noexcept {
    const std::size_t count = shelf.fetch;
    const auto most = static_cast<std::size_t>(shelf.end - shelf.first) / 2;
    shelf.fetch = static_cast<std::uint8_t>(std::min(count == 0 ? 1 : 2 * count, most));
    return count;
  }
  // Takes out the blocks that have been here longest; all but `keep`.
  template <class Function>
  void spill(Shelf& shelf, std::size_t keep, Function&& function) noexcept {
    const std::size_t count = shelf.count();
    if (count <= keep) return;
    const std::size_t gone = count - keep;
    shelf.fetch /= 2;
    for (std::size_t i = 0; i < gone; ++i) function(shelf.first[i]);
    shelf.next = std::copy(shelf.first + gone, shelf.next, shelf.first);
    set_cached_bytes(cached_bytes() - gone * shelf.block_bytes);
  }
  template <class Function>
  void spill_all(Function&& function) noexcept {
    for (Shelf& shelf : shelves_) spill(shelf, 0, function);
  }
  // As if the thread had just begun: all blocks are taken out, and nothing is known of what it asks
  // for.
  template <class Function>
  void start_over(Function&& function) noexcept {
    spill_all(function);
    for (Shelf& shelf : shelves_) shelf.fetch = 0;
    next_spill_ = 0;
  }
  // Takes out whole classes, in turn, until half of what may be here is left.
  template <class Function>
  void spill_half(Function&& function) noexcept {
    while (cached_bytes() > kMagazineBytes / 2) {
      spill(shelves_[next_spill_], 0, function);
      next_spill_ = static_cast<std::uint8_t>((next_spill_ + 1U) % kSizeClasses);
    }
  }
  // Which blocks come next, by their offsets from `base`, and how many are fetched and spilled.
  void add_to(Fingerprint& print, DeviceAddress base) const {
    print.add(static_cast<std::uint64_t>(stream_)).add(next_spill_);
    for (const Shelf& shelf : shelves_) {
      print.add(shelf.fetch).add(shelf.count());
      for (const SlabSlot* slot = shelf.first; slot != shelf.next; ++slot) {
        print.add(slot->address - base);
      }
    }
  }
  template <class Function>
  void for_each(Function&& function) const {
    for (std::size_t c = 0; c < kSizeClasses; ++c) {
      for (const SlabSlot* s = shelves_[c].first; s != shelves_[c].next; ++s) function(c, *s);
    }
  }

 private:
  // A plain store: one thread at a time writes it.
  void set_cached_bytes(std::uint64_t bytes) noexcept {
    cached_bytes_.store(bytes, std::memory_order_relaxed);
  }

  StreamId stream_;
  std::atomic<std::uint64_t> cached_bytes_{0};
  std::uint8_t next_spill_ = 0;
  std::array<Shelf, kSizeClasses> shelves_{};
  std::array<SlabSlot, kMagazineSlots> slots_{};
};

// Of one thread and one heap.
class alignas(128) ThreadCache {
 public:
  // The owner, without the lock. Says whether it may stay; if not, it is out again.
  [[nodiscard]] bool enter() noexcept {
    is_inside_.exchange(true);
    return may_stay();
  }
  // The same in two steps, with a sequentially consistent swap of something between them.
  void say_inside() noexcept { is_inside_.store(true, kBeforeSwap); }
  [[nodiscard]] bool may_stay() noexcept {
    if (!is_paused_.load()) [[likely]] {
      return true;
    }
    leave();
    return false;
  }
  void leave() noexcept { is_inside_.store(false, std::memory_order_release); }

  // With the lock, by any thread.
  void pause_owner() noexcept {
    is_paused_.exchange(true);
    while (is_inside_.load()) std::this_thread::yield();
  }
  void resume_owner() noexcept { is_paused_.store(false, std::memory_order_release); }

  [[nodiscard]] Magazines* find(StreamId stream) const noexcept {
    for (const auto& magazines : streams) {
      if (magazines->stream() == stream) return magazines.get();
    }
    return nullptr;
  }

  ThreadTally tally{};
  std::vector<std::unique_ptr<Magazines>> streams{};  // grows with the lock, by the owner

 private:
  // On x86 a swap orders plain stores too; elsewhere the store itself must be ordered.
#if defined(__x86_64__) || defined(__i386__)
  static constexpr auto kBeforeSwap = std::memory_order_relaxed;
#else
  static constexpr auto kBeforeSwap = std::memory_order_seq_cst;
#endif

  std::atomic<bool> is_inside_{false};
  std::atomic<bool> is_paused_{false};
};

// Keeps a heap from going away while a thread that ends gives its blocks back to it.
struct HeapLink {
  std::mutex mutex;                      // taken before the allocator's lock, never after it
  std::atomic<SlabHeap*> heap{nullptr};  // written with the mutex; null once the heap is closed
};

// The cache that this thread used last. Plain data: it takes neither construction nor destruction,
// so that blocks can be freed while a thread ends. Heaps have numbers of their own, never given
// twice, so a heap that is gone is not found.
struct LastUsed {
  std::uint64_t heap = 0;
  StreamId stream = StreamId::kDefault;
  ThreadCache* cache = nullptr;
  Magazines* magazines = nullptr;
};
extern thread_local constinit LastUsed t_last_used;

// This thread's cache for a heap, null where there is none.
[[nodiscard]] ThreadCache* find_thread_cache(std::uint64_t heap) noexcept;
// t_last_used, set to this thread's magazines for the stream; null where there are none. Not
// inlined: a call in the path that every allocation takes costs it registers.
[[nodiscard, gnu::noinline]] LastUsed* find_magazines(std::uint64_t heap, StreamId stream) noexcept;
[[nodiscard]] inline LastUsed* use_magazines(std::uint64_t heap, StreamId stream) noexcept {
  LastUsed& last = t_last_used;
  if (last.heap == heap && last.stream == stream) [[likely]] {
    return &last;
  }
  return find_magazines(heap, stream);
}
// Makes the cache this thread's, to be given back when the thread ends. Says no when it is ending.
bool add_thread_cache(std::uint64_t heap,
                      const std::shared_ptr<HeapLink>& link,
                      const std::shared_ptr<ThreadCache>& cache);

}  // namespace headroom::memory::internal
