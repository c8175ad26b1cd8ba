// Shape and Strides: up to eight sizes, kept in place; the rules that shapes follow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

inline constexpr int kMaxDims = 8;

// A short list of integers. Dimensions may be counted from the back: -1 is the last.
class Dims {
 public:
  Dims() = default;
  // NOLINTBEGIN(google-explicit-constructor): {2, 3} is a shape
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span(values.begin(), values.end())) {}
  // Throws InvalidArgument for more than eight.
  Dims(std::span<const std::int64_t> values);
  // NOLINTEND(google-explicit-constructor)
  [[nodiscard]] static Dims filled(int count, std::int64_t value);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::int64_t& operator[](int i) noexcept { return values_[index(i)]; }
  [[nodiscard]] std::int64_t operator[](int i) const noexcept { return values_[index(i)]; }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return values_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return values_.data() + size_; }
  [[nodiscard]] std::int64_t back() const noexcept { return values_[index(size_ - 1)]; }

  // Throws InvalidArgument past eight.
  void push_back(std::int64_t value);
  void insert(int at, std::int64_t value);
  void erase(int at) noexcept;

  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  static std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }

  std::array<std::int64_t, kMaxDims> values_{};
  int size_ = 0;
};

using Shape = Dims;    // sizes, each at least 0
using Strides = Dims;  // in elements; 0 where a dimension is broadcast

// "[32, 64]".
[[nodiscard]] std::string to_string(const Dims& dims);

// The product. Throws InvalidArgument, in the name of `op`, for a negative size or when it does
// not fit; nor may that of the other sizes where one is 0, since strides are made of it.
[[nodiscard]] std::int64_t checked_numel(std::string_view op, const Shape& shape);
// numel * element bytes, checked.
[[nodiscard]] std::uint64_t checked_bytes(std::string_view op,
                                          const Shape& shape,
                                          std::uint64_t element_bytes);

[[nodiscard]] Strides contiguous_strides(const Shape& shape) noexcept;
[[nodiscard]] bool is_contiguous(const Shape& shape, const Strides& strides) noexcept;

// 0 to rank - 1 from -rank to rank - 1. Throws InvalidArgument: "sum: dimension 3 is not in [2,
// 4]".
[[nodiscard]] int normalize_dim(std::string_view op, std::int64_t dim, const Shape& shape);

// The shape both broadcast to. Throws InvalidArgument:
// "add: shapes do not broadcast: [2, 3] and [4, 3]".
[[nodiscard]] Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);
// Strides that read `shape` as `to`. `shape` must broadcast to it.
[[nodiscard]] Strides broadcast_strides(const Shape& shape,
                                        const Strides& strides,
                                        const Shape& to);

}  // namespace headroom
