// Scalar: a number beside a tensor. It has a kind but no width: `x + 2` keeps the type of an
// integer tensor, `x + 2.0` makes it f32, and neither widens f16.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include "headroom/tensor/dtype.h"

namespace headroom {

class Scalar {
 public:
  enum class Kind : std::uint8_t { kBool, kInteger, kFloating };

  Scalar() = default;
  // NOLINTBEGIN(google-explicit-constructor): a number is a Scalar wherever one is asked for
  template <std::floating_point T>
  constexpr Scalar(T value) noexcept
      : kind_(Kind::kFloating),
        floating_(static_cast<double>(value)),
        integer_(in_range(static_cast<double>(value)) ? static_cast<std::int64_t>(value) : 0) {}
  template <std::integral T>
  constexpr Scalar(T value) noexcept
      : kind_(std::same_as<T, bool> ? Kind::kBool : Kind::kInteger),
        floating_(static_cast<double>(value)),
        integer_(static_cast<std::int64_t>(value)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] constexpr Kind kind() const noexcept { return kind_; }
  [[nodiscard]] constexpr double to_double() const noexcept { return floating_; }
  [[nodiscard]] constexpr std::int64_t to_int() const noexcept { return integer_; }
  [[nodiscard]] constexpr bool is_floating() const noexcept { return kind_ == Kind::kFloating; }

 private:
  static constexpr bool in_range(double value) noexcept {
    return value > -9.2e18 && value < 9.2e18;  // false for NaN
  }

  Kind kind_ = Kind::kInteger;
  double floating_ = 0;
  std::int64_t integer_ = 0;
};

[[nodiscard]] std::string to_string(Scalar value);

// The type of a tensor of `dtype` with a scalar: the tensor's, unless the scalar is of a higher
// kind (bool < integer < floating).
[[nodiscard]] constexpr DType promote_types(DType dtype, Scalar scalar) noexcept {
  if (scalar.is_floating() && !is_differentiable(dtype)) return DType::kF32;
  if (scalar.kind() == Scalar::Kind::kInteger && dtype == DType::kBool) return DType::kI64;
  return dtype;
}

}  // namespace headroom
