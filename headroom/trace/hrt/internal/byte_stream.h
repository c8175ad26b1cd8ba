// Bytes as a file has them: little-endian numbers, varints, texts with their length before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::trace::internal {

[[nodiscard]] constexpr std::uint64_t to_zigzag(std::int64_t value) noexcept {
  return (static_cast<std::uint64_t>(value) << 1U) ^ static_cast<std::uint64_t>(value >> 63);
}
[[nodiscard]] constexpr std::int64_t from_zigzag(std::uint64_t value) noexcept {
  return static_cast<std::int64_t>((value >> 1U) ^ (0 - (value & 1U)));
}

class ByteWriter {
 public:
  void byte(std::uint8_t value) { bytes_.push_back(std::byte{value}); }
  // Seven bits a byte, the lowest first; the top bit says that more follow.
  void varint(std::uint64_t value) {
    while (value >= 0x80) {
      byte(static_cast<std::uint8_t>(value | 0x80U));
      value >>= 7U;
    }
    byte(static_cast<std::uint8_t>(value));
  }
  void zigzag(std::int64_t value) { varint(to_zigzag(value)); }
  void fixed(std::uint64_t value, int byte_count) {
    for (int i = 0; i < byte_count; ++i) byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void raw(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const std::size_t end = bytes_.size();
    bytes_.resize(end + bytes.size());  // insert() makes g++ 12 see overflows that are not there
    std::memcpy(bytes_.data() + end, bytes.data(), bytes.size());
  }
  void text(std::string_view value) {
    varint(value.size());
    raw(std::as_bytes(std::span(value)));
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  void clear() noexcept { bytes_.clear(); }
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what is there and no further. The first thing that is wrong stays: everything after it
// reads as zero, so a decoder may look at ok() once per item instead of once per number.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept
      : at_(bytes.data()), begin_(at_), end_(at_ + bytes.size()) {}

  [[nodiscard]] bool ok() const noexcept { return failure_ == nullptr; }
  [[nodiscard]] const char* failure() const noexcept { return failure_; }
  [[nodiscard]] std::size_t position() const noexcept {
    return static_cast<std::size_t>(at_ - begin_);
  }
  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  // `why` is a literal.
  void fail(const char* why) noexcept {
    if (failure_ == nullptr) failure_ = why;
    end_ = at_;
  }

  std::uint8_t byte() noexcept {
    if (at_ == end_) {
      fail("it ends too early");
      return 0;
    }
    return std::to_integer<std::uint8_t>(*at_++);
  }
  std::uint64_t varint() noexcept {
    if (at_ != end_ && std::to_integer<std::uint8_t>(*at_) < 0x80) [[likely]] {
      return std::to_integer<std::uint8_t>(*at_++);
    }
    return long_varint();
  }
  std::int64_t zigzag() noexcept { return from_zigzag(varint()); }
  // A number below `bound`.
  std::uint32_t index(std::uint64_t bound, const char* why) noexcept {
    const std::uint64_t value = varint();
    if (value < bound && value <= UINT32_MAX) [[likely]] {
      return static_cast<std::uint32_t>(value);
    }
    fail(why);
    return 0;
  }
  std::int32_t int32() noexcept {
    const std::int64_t value = zigzag();
    if (value < INT32_MIN || value > INT32_MAX) fail("a device number is out of range");
    return ok() ? static_cast<std::int32_t>(value) : 0;
  }
  // A count of things that take at least `least_bytes` each, so that nothing is reserved that the
  // input could not fill.
  std::size_t count(std::size_t least_bytes) noexcept {
    const std::uint64_t value = varint();
    if (value <= left() / least_bytes) return static_cast<std::size_t>(value);
    fail("it says that more follows than there is");
    return 0;
  }
  std::uint64_t fixed(int byte_count) noexcept {
    std::uint64_t value = 0;
    for (int i = 0; i < byte_count; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }
  // Into the bytes that are read.
  std::string_view text() noexcept {
    const std::size_t size = count(1);
    const std::string_view out(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return out;
  }

 private:
  std::uint64_t long_varint() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      value |= std::uint64_t{next & 0x7FU} << shift;
      if (next < 0x80) {
        if (shift == 63 && next > 1) fail("a number is longer than 64 bits");
        return ok() ? value : 0;
      }
    }
    fail("a number is longer than 64 bits");
    return 0;
  }

  const std::byte* at_;
  const std::byte* begin_;
  const std::byte* end_;
  const char* failure_ = nullptr;
};

}  // namespace headroom::trace::internal
