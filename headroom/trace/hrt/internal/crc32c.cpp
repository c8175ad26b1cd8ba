#include "headroom/trace/hrt/internal/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace headroom::trace::internal {
namespace {

constexpr std::size_t kLanes = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kLanes>;

// Table k advances a byte's remainder by k more zero bytes, so that eight bytes are looked up at
// once.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) * 0x82F63B78U);
    tables[0][i] = value;
  }
  for (std::size_t k = 1; k < kLanes; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[k - 1][i];
      tables[k][i] = (before >> 8U) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

std::uint32_t step(std::uint32_t crc, std::byte byte) noexcept {
  return (crc >> 8U) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  std::uint32_t crc = 0xFFFFFFFFU;
  if constexpr (std::endian::native == std::endian::little) {
    for (; bytes.size() >= kLanes; bytes = bytes.subspan(kLanes)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), kLanes);
      word ^= crc;
      crc = 0;
      for (std::size_t i = 0; i < kLanes; ++i) {
        crc ^= kTables[kLanes - 1 - i][(word >> (8 * i)) & 0xFFU];
      }
    }
  }
  for (const std::byte byte : bytes) crc = step(crc, byte);
  return ~crc;
}

}  // namespace headroom::trace::internal
