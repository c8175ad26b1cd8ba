#include "headroom/trace/record/internal/lazy_memory.h"

#include <cstring>
#include <new>
#include <sys/mman.h>

#include "headroom/base/checked.h"

namespace headroom::trace::internal {

LazyMemory::LazyMemory(std::size_t size_bytes) : size_bytes_(size_bytes) {
  constexpr std::size_t kLargePage = std::size_t{2} << 20U;
  // More than is needed, so that it can begin where a large page does.
  const std::size_t alignment = size_bytes >= kLargePage ? kLargePage : 64;
  mapped_bytes_ = size_bytes + (size_bytes >= kLargePage ? kLargePage : 0);
  mapping_ =
      ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  start_ = round_up(reinterpret_cast<std::uintptr_t>(mapping_), alignment);
#if defined(MADV_HUGEPAGE)
  // An advice: small pages work as well.
  (void)::madvise(as<void>(), size_bytes, MADV_HUGEPAGE);
#endif
}

LazyMemory::~LazyMemory() { ::munmap(mapping_, mapped_bytes_); }

void LazyMemory::fill() const noexcept { std::memset(as<void>(), 0, size_bytes_); }

}  // namespace headroom::trace::internal
