// The only functions through which the cpu device reads and writes its memory.
#pragma once

#include <cstdint>

namespace headroom::device::internal {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

// The ranges may overlap.
void copy_bytes(void* to, const void* from, std::uint64_t size_bytes) noexcept;
void fill_bytes(void* to, std::uint8_t value, std::uint64_t size_bytes) noexcept;

// Nothing without AddressSanitizer.
void poison_bytes(void* from, std::uint64_t size_bytes) noexcept;
void unpoison_bytes(void* from, std::uint64_t size_bytes) noexcept;

}  // namespace headroom::device::internal
