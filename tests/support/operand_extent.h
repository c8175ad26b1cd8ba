// Extent: the elements that an operand of a kernel has, and how the kernel uses them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "headroom/tensor/kernels.h"

namespace headroom::testing {

enum class Use : std::uint8_t {
  kRead,
  kWritten,  // every element, whatever was there before
  kUpdated,  // some elements, or by what was there before
};

// Elements of an operand: those of `shape`, in steps of `strides`, each of `element_bytes`. Of what
// is only read, one element stands for all.
struct Extent {
  Use use = Use::kRead;
  std::uint64_t element_bytes = 1;
  Shape shape{};
  Strides strides{};

  // From the first byte to past the last.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t last = 0;
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0) return 0;
      last += static_cast<std::uint64_t>(shape[i] - 1) * static_cast<std::uint64_t>(strides[i]);
    }
    return (last + 1) * element_bytes;
  }
};

namespace internal {

using namespace tensor;  // NOLINT(google-build-using-namespace): the arguments' own words

[[nodiscard]] inline Extent read() { return {}; }
[[nodiscard]] inline Extent elements(Use use, DType dtype, std::int64_t count) {
  return {.use = use,
          .element_bytes = headroom::size_bytes(dtype),
          .shape = {std::max<std::int64_t>(count, 0)},
          .strides = {1}};
}
[[nodiscard]] inline Extent written(DType dtype, std::int64_t count) {
  return elements(Use::kWritten, dtype, count);
}
[[nodiscard]] inline Extent updated(DType dtype, std::int64_t count) {
  return elements(Use::kUpdated, dtype, count);
}
[[nodiscard]] inline DType wide(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}
[[nodiscard]] inline std::int64_t product(std::span<const std::int64_t> sizes) {
  std::uint64_t out = 1;  // wraps: a plan may ask about any shape
  for (const std::int64_t size : sizes) out *= static_cast<std::uint64_t>(size);
  return static_cast<std::int64_t>(out);
}
[[nodiscard]] inline std::int64_t product(const Dims& sizes) {
  return product(std::span(sizes.begin(), sizes.end()));
}
[[nodiscard]] inline std::int64_t area(const Pair& pair) { return product(std::span(pair)); }

[[nodiscard]] inline Extent over(const Operand& operand, const Shape& shape, Use use) {
  if (operand.is_bits) return elements(use, DType::kU8, (product(shape) + 7) / 8);
  return {.use = use,
          .element_bytes = headroom::size_bytes(operand.dtype),
          .shape = shape,
          .strides = std::span(operand.strides).first(static_cast<std::size_t>(shape.size()))};
}

[[nodiscard]] inline bool overlap(const void* a,
                                  std::uint64_t a_bytes,
                                  const void* b,
                                  std::uint64_t b_bytes) {
  return static_cast<const char*>(a) < static_cast<const char*>(b) + b_bytes &&
         static_cast<const char*>(b) < static_cast<const char*>(a) + a_bytes;
}

}  // namespace internal

}  // namespace headroom::testing
