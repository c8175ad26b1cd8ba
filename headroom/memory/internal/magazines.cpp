#include "headroom/memory/internal/magazines.h"

#include "headroom/base/fork.h"
#include "headroom/memory/internal/slab_heap.h"

namespace headroom::memory::internal {

thread_local constinit LastUsed t_last_used{};

namespace {

struct HeapOfThread {
  std::uint64_t heap = 0;
  std::shared_ptr<HeapLink> link{};
  std::shared_ptr<ThreadCache> cache{};
};

// The caches of this thread. Its destructor runs when the thread ends.
class HeapsOfThread {
 public:
  HeapsOfThread() = default;
  HeapsOfThread(const HeapsOfThread&) = delete;
  HeapsOfThread& operator=(const HeapsOfThread&) = delete;
  ~HeapsOfThread();

  [[nodiscard]] ThreadCache* find(std::uint64_t heap) const noexcept {
    for (const HeapOfThread& entry : entries_) {
      if (entry.heap == heap) return entry.cache.get();
    }
    return nullptr;
  }
  void add(HeapOfThread entry) {
    // Heaps that are gone since leave their entries to whoever comes next. Without their mutex:
    // this thread has an allocator's lock.
    std::erase_if(entries_, [](const HeapOfThread& old) { return old.link->heap == nullptr; });
    entries_.push_back(std::move(entry));
  }
  // In the child of a fork: the heaps are the parent's, and so is what is kept here.
  void forget() noexcept { entries_.clear(); }

 private:
  std::vector<HeapOfThread> entries_;
};

// Plain, as t_last_used: other objects of the thread may free blocks after the caches are gone.
thread_local constinit HeapsOfThread* t_heaps = nullptr;
thread_local constinit bool t_is_ending = false;

HeapsOfThread::~HeapsOfThread() {
  t_is_ending = true;
  t_heaps = nullptr;
  t_last_used = {};
  for (HeapOfThread& entry : entries_) {
    const std::lock_guard lock(entry.link->mutex);
    if (SlabHeap* const heap = entry.link->heap) heap->retire(*entry.cache);
  }
}

// The thread that forked is the only one that has anything here: without it, allocations and frees
// take the lock, which refuses.
void forget_in_child() noexcept {
  t_last_used = {};
  if (t_heaps != nullptr) t_heaps->forget();
}

[[maybe_unused]] const bool kForgetsInChild = [] {
  add_fork_handlers({.in_child = forget_in_child});
  return true;
}();

}  // namespace

Magazines::Magazines(StreamId stream) noexcept : stream_(stream) {
  for (std::size_t c = 0; c < kSizeClasses; ++c) {
    Shelf& shelf = shelves_[c];
    shelf.first = shelf.next = &slots_[kClasses[c].magazine_start];
    shelf.end = shelf.first + kClasses[c].magazine_blocks;
    shelf.block_bytes = kClasses[c].block_bytes;
  }
}

ThreadCache* find_thread_cache(std::uint64_t heap) noexcept {
  if (t_last_used.heap == heap) return t_last_used.cache;
  return t_heaps == nullptr ? nullptr : t_heaps->find(heap);
}

LastUsed* find_magazines(std::uint64_t heap, StreamId stream) noexcept {
  ThreadCache* const cache = find_thread_cache(heap);
  Magazines* const magazines = cache == nullptr ? nullptr : cache->find(stream);
  if (magazines == nullptr) return nullptr;
  t_last_used = {.heap = heap, .stream = stream, .cache = cache, .magazines = magazines};
  return &t_last_used;
}

bool add_thread_cache(std::uint64_t heap,
                      const std::shared_ptr<HeapLink>& link,
                      const std::shared_ptr<ThreadCache>& cache) {
  if (t_is_ending) return false;
  thread_local HeapsOfThread heaps;
  t_heaps = &heaps;
  heaps.add({.heap = heap, .link = link, .cache = cache});
  return true;
}

}  // namespace headroom::memory::internal
