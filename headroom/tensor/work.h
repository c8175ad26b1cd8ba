// Work: the arithmetic that an op declares where it is recorded (tape.h).
#pragma once

#include <cstdint>

namespace headroom::tensor {

// The arithmetic of an op's forward, in multiplications and additions: declared where it is
// recorded. What only moves elements does none; any other function of an element counts as one.
struct Work {
  enum class Kind : std::uint8_t { kUnknown, kNone, kEachOutput, kEachInput, kCounted };
  Kind kind = Kind::kUnknown;
  double operations = 0;  // kCounted
};
inline constexpr Work kNoWork{.kind = Work::Kind::kNone};
inline constexpr Work kEachOutput{.kind = Work::Kind::kEachOutput};  // one for each element
inline constexpr Work kEachInput{.kind = Work::Kind::kEachInput};    // of the first input
[[nodiscard]] constexpr Work counted(double operations) noexcept {
  return {.kind = Work::Kind::kCounted, .operations = operations};
}

// The name of an op (of static life), and the work that it does.
struct OpInfo {
  const char* name;
  Work work;
};

}  // namespace headroom::tensor
