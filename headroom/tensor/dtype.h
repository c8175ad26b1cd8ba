// The types of elements: nine, their sizes and names, and which of two wins.
#pragma once

#include <complex>
#include <cstdint>
#include <string_view>

#include "headroom/tensor/half.h"

namespace headroom {

enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI32, kI64, kU8, kBool, kC64 };
using enum DType;
inline constexpr int kDTypeCount = 9;

using Complex64 = std::complex<float>;

[[nodiscard]] constexpr std::uint64_t size_bytes(DType dtype) noexcept {
  constexpr std::uint64_t kSizes[] = {4, 8, 2, 2, 4, 8, 1, 1, 8};
  return kSizes[static_cast<int>(dtype)];
}

// "f32", "bf16", "bool".
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept { return dtype <= DType::kBF16; }
// Integers, without bool.
[[nodiscard]] constexpr bool is_integral(DType dtype) noexcept {
  return dtype >= DType::kI32 && dtype <= DType::kU8;
}
[[nodiscard]] constexpr bool is_complex(DType dtype) noexcept { return dtype == DType::kC64; }
// Whether its tensors can have gradients.
[[nodiscard]] constexpr bool is_differentiable(DType dtype) noexcept {
  return is_floating(dtype) || is_complex(dtype);
}

// The type that holds the values of both, as PyTorch has it: the wider within a kind, a floating
// type over an integer one of any width, f32 for f16 with bf16, c64 over all. That includes f64:
// there is no wider complex type.
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
template <>
struct DTypeOf<Complex64> {
  static constexpr DType kValue = DType::kC64;
};
template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::kValue;

}  // namespace headroom
