#include "headroom/tensor/shape.h"

#include <algorithm>
#include <limits>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"

namespace headroom {
namespace {

[[noreturn]] void refuse_dims(std::size_t count) {
  throw InvalidArgument("a tensor has at most " + std::to_string(kMaxDims) + " dimensions, not " +
                        std::to_string(count));
}

}  // namespace

Dims::Dims(std::span<const std::int64_t> values) : size_(static_cast<int>(values.size())) {
  if (values.size() > kMaxDims) refuse_dims(values.size());
  std::copy(values.begin(), values.end(), values_.begin());
}

Dims Dims::filled(int count, std::int64_t value) {
  Dims out;
  for (int i = 0; i < count; ++i) out.push_back(value);
  return out;
}

void Dims::push_back(std::int64_t value) { insert(size_, value); }

void Dims::insert(int at, std::int64_t value) {
  if (size_ == kMaxDims) refuse_dims(kMaxDims + 1);
  // One by one: for std::copy_backward g++ 14 warns of sizes that cannot be.
  for (int i = size_++; i > at; --i) (*this)[i] = (*this)[i - 1];
  (*this)[at] = value;
}

void Dims::erase(int at) noexcept {
  std::copy(values_.begin() + at + 1, values_.begin() + size_, values_.begin() + at);
  --size_;
}

std::string to_string(const Dims& dims) {
  std::string out = "[";
  for (const std::int64_t value : dims) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(value);
  }
  return out + "]";
}

std::int64_t checked_numel(std::string_view op, const Shape& shape) {
  std::uint64_t product = 1;
  bool has_zero = false;
  bool fits = true;
  for (const std::int64_t size : shape) {
    if (size < 0) {
      throw InvalidArgument(std::string(op) + ": negative size in " + to_string(shape));
    }
    has_zero = has_zero || size == 0;
    const auto next =
        checked_mul(product, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
    fits = fits && next && *next <= std::numeric_limits<std::int64_t>::max();
    if (fits) product = *next;
  }
  if (!fits) {
    throw InvalidArgument(std::string(op) + ": " + to_string(shape) +
                          (has_zero ? " has sizes whose product is more than 64 bits can count"
                                    : " has more elements than 64 bits can count"));
  }
  return has_zero ? 0 : static_cast<std::int64_t>(product);
}

std::uint64_t checked_bytes(std::string_view op, const Shape& shape, std::uint64_t element_bytes) {
  const auto numel = static_cast<std::uint64_t>(checked_numel(op, shape));
  const auto bytes = checked_mul(numel, element_bytes);
  if (!bytes || *bytes > std::numeric_limits<std::int64_t>::max()) {
    throw InvalidArgument(std::string(op) + ": " + to_string(shape) + " of " +
                          std::to_string(element_bytes) +
                          "-byte elements has more bytes than 64 bits can count");
  }
  return *bytes;
}

Strides contiguous_strides(const Shape& shape) noexcept {
  Strides out = shape;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    out[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return out;
}

bool is_contiguous(const Shape& shape, const Strides& strides) noexcept {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

int normalize_dim(std::string_view op, std::int64_t dim, const Shape& shape) {
  const int rank = std::max(shape.size(), 1);  // a scalar answers to 0 and -1, as in PyTorch
  if (dim < -rank || dim >= rank) {
    throw InvalidArgument(std::string(op) + ": dimension " + std::to_string(dim) + " is not in " +
                          to_string(shape));
  }
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape out = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    std::int64_t& size = out[i + shift];
    if (size == shorter[i] || shorter[i] == 1) continue;
    if (size != 1) {
      throw InvalidArgument(std::string(op) + ": shapes do not broadcast: " + to_string(a) +
                            " and " + to_string(b));
    }
    size = shorter[i];
  }
  return out;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& to) {
  Strides out = Dims::filled(to.size(), 0);
  const int shift = to.size() - shape.size();
  for (int i = 0; i < shape.size(); ++i) {
    out[i + shift] = shape[i] == 1 && to[i + shift] != 1 ? 0 : strides[i];
  }
  return out;
}

}  // namespace headroom
