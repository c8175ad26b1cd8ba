// What an element is: eight types, their sizes and names, and which of two wins.
#pragma once

#include <cstdint>
#include <string_view>

#include "headroom/tensor/half.h"

namespace headroom {

enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI32, kI64, kU8, kBool };
using enum DType;
inline constexpr int kDTypeCount = 8;

[[nodiscard]] constexpr std::uint64_t size_bytes(DType dtype) noexcept {
  constexpr std::uint64_t kSizes[] = {4, 8, 2, 2, 4, 8, 1, 1};
  return kSizes[static_cast<int>(dtype)];
}

// "f32", "bf16", "bool".
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept { return dtype <= DType::kBF16; }
// Integers, without bool.
[[nodiscard]] constexpr bool is_integral(DType dtype) noexcept {
  return dtype >= DType::kI32 && dtype <= DType::kU8;
}

// The type that holds the values of both, as PyTorch has it: the wider within a kind, a floating
// type over an integer one of any width, f32 for f16 with bf16.
[[nodiscard]] DType promote_types(DType a, DType b) noexcept;

// A C++ type and its DType.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType kValue = DType::kF16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType kValue = DType::kBF16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType kValue = DType::kI64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType kValue = DType::kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType kValue = DType::kBool;
};
template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::kValue;

}  // namespace headroom
