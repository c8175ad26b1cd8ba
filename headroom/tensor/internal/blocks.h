// Elements by the block: whatever their type and strides, kernels compute on short contiguous runs
// of f32, f64, i64 or c64 that lie in the first cache. So each arithmetic loop is written once per
// compute type, contiguous, and the compiler vectorises it; conversion is a loop of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headroom/tensor/kernels.h"

namespace headroom::tensor::cpu {

// A multiple of 8: a block of bits starts at a byte.
inline constexpr std::int64_t kBlock = 1024;
// Elements worth waking a thread for.
inline constexpr std::int64_t kGrain = 32 * kBlock;

template <class C>
struct alignas(64) Block {
  C values[kBlock];
};

template <class C>
inline constexpr DType kNative = kDTypeOf<C>;

// Calls f with C's type for the compute type: f.template operator()<float>(). Complex numbers have
// kernels of their own.
template <class F>
void with_compute_type(ComputeType type, F&& f) {
  switch (type) {
    case ComputeType::kF32:
      return f.template operator()<float>();
    case ComputeType::kF64:
      return f.template operator()<double>();
    case ComputeType::kI64:
      return f.template operator()<std::int64_t>();
    case ComputeType::kC64:
      return;
  }
}

// Whether the elements lie one behind the other in row-major order.
[[nodiscard]] inline bool is_dense(const Operand& operand, const Shape& shape) {
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (operand.strides[static_cast<std::size_t>(i)] != step) return false;
    step *= shape[i];
  }
  return true;
}

// Where elements [start, start + count) are, when they are an array of C; null when they must be
// loaded or stored by conversion. They are where the operand is dense, or inside one of its rows.
template <class C>
[[nodiscard]] C* direct(const Operand& operand,
                        const Shape& shape,
                        std::int64_t start,
                        std::int64_t count) {
  if (operand.is_bits || operand.is_scalar || operand.dtype != kNative<C>) return nullptr;
  auto* data = static_cast<C*>(operand.data);
  std::int64_t offset = 0;
  for (int i = shape.size() - 1; i >= 0; --i) {
    const std::int64_t at = start % shape[i];
    const std::int64_t stride = operand.strides[static_cast<std::size_t>(i)];
    if (i == shape.size() - 1 && (stride != 1 || at + count > shape[i])) {
      return is_dense(operand, shape) ? data + start : nullptr;
    }
    offset += at * stride;
    start /= shape[i];
  }
  return data + offset;
}

// Elements [start, start + count) in row-major order over `shape`; count is at most kBlock.
template <class C>
void load(
    const Operand& operand, const Shape& shape, std::int64_t start, std::int64_t count, C* to);
template <class C>
void store(const Operand& operand,
           const Shape& shape,
           std::int64_t start,
           std::int64_t count,
           const C* from);

// A run of `count` elements with a stride, from `data` (already at the first).
template <class C>
void load_run(const void* data, DType dtype, std::int64_t stride, std::int64_t count, C* to);
template <class C>
void store_run(void* data, DType dtype, std::int64_t stride, std::int64_t count, const C* from);

// The block itself where it can be read in place, else a copy in `buffer`.
template <class C>
const C* read(
    const Operand& operand, const Shape& shape, std::int64_t start, std::int64_t count, C* buffer) {
  if (const C* in_place = direct<C>(operand, shape, start, count)) return in_place;
  load(operand, shape, start, count, buffer);
  return buffer;
}

// Calls f(offset in elements, stride, count) for the runs of the innermost dimension that make up
// [start, start + count).
template <class F>
void for_runs(const Shape& shape,
              const std::int64_t* strides,
              std::int64_t start,
              std::int64_t count,
              F&& f) {
  const int rank = shape.size();
  if (rank == 0) {
    f(std::int64_t{0}, std::int64_t{0}, count);
    return;
  }
  std::int64_t at[kMaxDims];
  std::int64_t offset = 0;
  for (int i = rank - 1; i >= 0; --i) {
    at[i] = start % shape[i];
    start /= shape[i];
    offset += at[i] * strides[i];
  }
  const int inner = rank - 1;
  while (count > 0) {
    const std::int64_t run = std::min(count, shape[inner] - at[inner]);
    f(offset, strides[inner], run);
    count -= run;
    at[inner] += run;
    offset += run * strides[inner];
    for (int i = inner; i > 0 && at[i] == shape[i]; --i) {
      offset += strides[i - 1] - at[i] * strides[i];
      at[i] = 0;
      ++at[i - 1];
    }
  }
}

}  // namespace headroom::tensor::cpu
