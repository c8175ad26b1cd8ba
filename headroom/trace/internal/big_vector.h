// Memory for arrays of many megabytes that are filled once: it asks for huge pages, because
// touching 100 MB in pages of 4 KiB takes longer than parsing the snapshot that fills them. It is
// taken from the budget of the file that fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/budget.h"

namespace headroom::trace::internal {

inline constexpr std::size_t kHugePage = 2_MiB;

// A wish: refused, it is only slower.
inline void wish_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const std::uintptr_t begin =
      (reinterpret_cast<std::uintptr_t>(memory) + kHugePage - 1) & ~(std::uintptr_t{kHugePage} - 1);
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(memory) + bytes;
  if (begin + kHugePage <= end) {
    (void)madvise(
        reinterpret_cast<void*>(begin), (end - begin) / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
#endif
}

// For std::free and std::realloc. Throws std::bad_alloc.
[[nodiscard]] inline void* allocate_huge(std::size_t bytes) {
  const std::size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, whole);
  if (memory == nullptr) throw std::bad_alloc();
  wish_for_huge_pages(memory, whole);
  return memory;
}

template <class T>
struct BigAllocator {
  using value_type = T;

  // NOLINTNEXTLINE(google-explicit-constructor): an array is made with its budget
  BigAllocator(Budget& whose) : budget(&whose) {}
  template <class U>
  explicit BigAllocator(const BigAllocator<U>& other) : budget(other.budget) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    const std::size_t bytes = count * sizeof(T);
    budget->take(bytes);
    return static_cast<T*>(bytes < 2 * kHugePage ? ::operator new(bytes) : allocate_huge(bytes));
  }

  void deallocate(T* memory, std::size_t count) noexcept {
    budget->give_back(count * sizeof(T));
    if (count * sizeof(T) < 2 * kHugePage) return ::operator delete(memory);
    std::free(memory);
  }

  friend bool operator==(const BigAllocator& a, const BigAllocator& b) {
    return a.budget == b.budget;
  }

  Budget* budget;
};

template <class T>
using BigVector = std::vector<T, BigAllocator<T>>;

}  // namespace headroom::trace::internal
