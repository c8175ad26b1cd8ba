// What SlabHeap and SlabSleep do with the lists of slabs and pages, and the granules of a page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::memory::internal {

template <class T>
void link_in(T*& head, T& entry) noexcept {
  entry.prev = nullptr;
  entry.next = head;
  if (head != nullptr) head->prev = &entry;
  head = &entry;
}

template <class T>
void unlink_from(T*& head, T& entry) noexcept {
  (entry.prev != nullptr ? entry.prev->next : head) = entry.next;
  if (entry.next != nullptr) entry.next->prev = entry.prev;
  entry.prev = entry.next = nullptr;
}

[[nodiscard]] constexpr std::uint32_t granule_mask(std::size_t first, std::size_t count) noexcept {
  return static_cast<std::uint32_t>(((std::uint64_t{1} << count) - 1) << first);
}

}  // namespace headroom::memory::internal
