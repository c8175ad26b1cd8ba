// Numbers of the settings text: whole and checked, or with the prefix rules of C++'s stoull and
// stod, as PyTorch reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::memory::internal {

enum class NumberFault : std::uint8_t { kNone, kNotANumber, kOutOfRange };

template <class T>
struct ReadNumber {
  T value{};
  NumberFault fault = NumberFault::kNone;
  bool has_trailing_junk = false;  // what follows the number, and is ignored
  bool has_wrapped = false;        // a minus sign turned it into something huge
};

// All of `text` is decimal digits.
[[nodiscard]] std::optional<std::uint64_t> read_whole(std::string_view text) noexcept;
// All of `text` is a finite decimal number.
[[nodiscard]] std::optional<double> read_real(std::string_view text) noexcept;

// std::stoull, and size_t(std::stoi(...)), which PyTorch used before 2.10.
[[nodiscard]] ReadNumber<std::uint64_t> read_like_stoull(std::string_view text) noexcept;
[[nodiscard]] ReadNumber<std::uint64_t> read_like_stoi(std::string_view text) noexcept;
// std::stod in the C locale.
[[nodiscard]] ReadNumber<double> read_like_stod(std::string_view text) noexcept;

}  // namespace headroom::memory::internal
