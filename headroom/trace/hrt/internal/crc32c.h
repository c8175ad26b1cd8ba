// CRC-32C (Castagnoli), the checksum of .hrt blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headroom::trace::internal {

[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;

}  // namespace headroom::trace::internal
