// Bytes that grow at the end without being zeroed first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/big_vector.h"

namespace headroom::trace::internal {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Buffer() { std::free(data_); }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // At least `least` bytes behind the end, to be filled; add() then says how many were.
  [[nodiscard]] std::span<std::byte> room(std::size_t least) {
    if (capacity_ - size_ < least) {
      const std::size_t wanted = std::max({size_ + least, capacity_ * 3 / 2, std::size_t{64_KiB}});
      // Large areas move by changing page tables, not by copying.
      const bool is_huge = data_ == nullptr && wanted >= 2 * kHugePage;
      void* moved = is_huge ? allocate_huge(wanted) : std::realloc(data_, wanted);
      if (moved == nullptr) throw std::bad_alloc();
      data_ = static_cast<std::byte*>(moved);
      capacity_ = wanted;
    }
    return {data_ + size_, capacity_ - size_};
  }
  void add(std::size_t count) noexcept { size_ += count; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace headroom::trace::internal
