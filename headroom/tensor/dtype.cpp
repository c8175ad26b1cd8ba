#include "headroom/tensor/dtype.h"

#include <algorithm>
#include <array>

namespace headroom {
namespace {

// Place in the order of integers: bool < u8 < i32 < i64.
int integer_rank(DType dtype) noexcept {
  switch (dtype) {
    case DType::kI64:
      return 3;
    case DType::kI32:
      return 2;
    case DType::kU8:
      return 1;
    default:
      return 0;
  }
}

DType promote_floating(DType a, DType b) noexcept {
  if (a == b) return a;
  return a == DType::kF64 || b == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace

std::string_view to_string(DType dtype) noexcept {
  constexpr std::array<std::string_view, kDTypeCount> kNames{
      "f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool", "c64"};
  return kNames[static_cast<std::size_t>(dtype)];
}

DType promote_types(DType a, DType b) noexcept {
  if (is_complex(a) || is_complex(b)) return DType::kC64;
  if (is_floating(a) && is_floating(b)) return promote_floating(a, b);
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  return integer_rank(a) >= integer_rank(b) ? a : b;
}

}  // namespace headroom
