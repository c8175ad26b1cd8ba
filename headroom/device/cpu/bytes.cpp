#include "headroom/device/cpu/internal/bytes.h"

#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace headroom::device::internal {

#if defined(__SANITIZE_THREAD__)

// ThreadSanitizer keeps several bytes of shadow for every byte it sees touched, also by memcpy,
// and never gives them back; device memory is too much of it. Races on device memory are the
// streams' to show, by wrong data; races of the host's own memory are seen as everywhere.
#define HEADROOM_UNSEEN \
  __attribute__((no_sanitize_thread, noinline, optimize("no-tree-loop-distribute-patterns")))

HEADROOM_UNSEEN void copy_bytes(void* to, const void* from, std::uint64_t size_bytes) noexcept {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  if (out <= in || out >= in + size_bytes) {
    std::uint64_t at = 0;
    for (; at + sizeof(std::uint64_t) <= size_bytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word;
      __builtin_memcpy(&word, in + at, sizeof word);
      __builtin_memcpy(out + at, &word, sizeof word);
    }
    for (; at < size_bytes; ++at) out[at] = in[at];
  } else {
    for (std::uint64_t at = size_bytes; at-- > 0;) out[at] = in[at];
  }
}

HEADROOM_UNSEEN void fill_bytes(void* to, std::uint8_t value, std::uint64_t size_bytes) noexcept {
  auto* out = static_cast<unsigned char*>(to);
  const std::uint64_t word = value * 0x0101010101010101ULL;
  std::uint64_t at = 0;
  for (; at + sizeof word <= size_bytes; at += sizeof word) {
    __builtin_memcpy(out + at, &word, sizeof word);
  }
  for (; at < size_bytes; ++at) out[at] = value;
}

#undef HEADROOM_UNSEEN

#else

// AddressSanitizer checks these two against what is poisoned, which is what we want.
void copy_bytes(void* to, const void* from, std::uint64_t size_bytes) noexcept {
  std::memmove(to, from, size_bytes);
}

void fill_bytes(void* to, std::uint8_t value, std::uint64_t size_bytes) noexcept {
  std::memset(to, value, size_bytes);
}

#endif

void poison_bytes([[maybe_unused]] void* from, [[maybe_unused]] std::uint64_t size_bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(from, size_bytes);
#endif
}

void unpoison_bytes([[maybe_unused]] void* from,
                    [[maybe_unused]] std::uint64_t size_bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(from, size_bytes);
#endif
}

}  // namespace headroom::device::internal
