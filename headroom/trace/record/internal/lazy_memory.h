// Memory that is there once it is touched, in large pages where the system has them: a small page
// would be faulted in every 64 events, which costs more than recording them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::trace::internal {

class LazyMemory {
 public:
  // Zeros. Throws std::bad_alloc.
  explicit LazyMemory(std::size_t size_bytes);
  ~LazyMemory();
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;

  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(start_);
  }
  // Touches all of it.
  void fill() const noexcept;

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::uintptr_t start_ = 0;
  std::size_t size_bytes_ = 0;
};

}  // namespace headroom::trace::internal
