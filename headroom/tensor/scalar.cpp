#include "headroom/tensor/scalar.h"

#include <array>
#include <cstdio>

namespace headroom {

std::string to_string(Scalar value) {
  if (value.kind() == Scalar::Kind::kBool) return value.to_int() != 0 ? "true" : "false";
  if (value.kind() == Scalar::Kind::kInteger) return std::to_string(value.to_int());
  std::array<char, 40> text{};
  (void)std::snprintf(text.data(), text.size(), "%g", value.to_double());
  return text.data();
}

}  // namespace headroom
