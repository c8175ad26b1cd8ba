// Memory for arrays of many megabytes that are filled once: it asks for huge pages, because
// touching 100 MB in pages of 4 KiB takes longer than parsing the snapshot that fills them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "headroom/base/bytes.h"

namespace headroom::trace::internal {

inline constexpr std::size_t kHugePage = 2_MiB;

// For std::free and std::realloc. Throws std::bad_alloc.
[[nodiscard]] inline void* allocate_huge(std::size_t bytes) {
  const std::size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, whole);
  if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  (void)madvise(memory, whole, MADV_HUGEPAGE);  // a wish: refused, it is only slower
#endif
  return memory;
}

template <class T>
struct BigAllocator {
  using value_type = T;

  BigAllocator() = default;
  template <class U>
  explicit BigAllocator(const BigAllocator<U>& /*other*/) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    const std::size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < 2 * kHugePage ? ::operator new(bytes) : allocate_huge(bytes));
  }

  void deallocate(T* memory, std::size_t count) noexcept {
    if (count * sizeof(T) < 2 * kHugePage) return ::operator delete(memory);
    std::free(memory);
  }

  friend bool operator==(const BigAllocator&, const BigAllocator&) { return true; }
};

template <class T>
using BigVector = std::vector<T, BigAllocator<T>>;

}  // namespace headroom::trace::internal
