// The values of a pickle, before they are given a meaning: eight bytes each, in a few arrays.
//
//   Ref      one value: a small integer lies in it, anything else is a number into an array
//   dict     parts, one per SETITEM(S); a part is a shape and its values. Dictionaries with the
//   same
//            keys share the shape, so whoever reads them looks the keys up once per shape
//   list     a range of one array of Refs; a tuple is a list that nobody appends to
//   string   a range of the input, which has to stay
//
// Values are shared as they were in the file, so they are a graph, and a hostile file can make it
// contain itself or unfold without end: whoever walks it keeps a budget.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "headroom/trace/internal/big_vector.h"

namespace headroom::trace::internal {

enum class Kind : std::uint8_t {
  kAbsent,  // no value at all: an empty place of the memo, a field that is missing
  kNone,
  kBool,
  kInt,       // fits in 60 bits and lies in the Ref
  kBigInt,    // any other int64
  kUnsigned,  // above int64
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
};

class Ref {
 public:
  constexpr Ref() = default;
  constexpr Ref(Kind kind, std::uint64_t index)
      : bits_(index << kKindBits | static_cast<std::uint64_t>(kind)) {}

  [[nodiscard]] constexpr Kind kind() const noexcept {
    return static_cast<Kind>(bits_ & ((1U << kKindBits) - 1));
  }
  [[nodiscard]] constexpr std::uint64_t index() const noexcept { return bits_ >> kKindBits; }
  // Of a kInt; the shift brings the sign back.
  [[nodiscard]] constexpr std::int64_t small() const noexcept {
    return static_cast<std::int64_t>(bits_) >> kKindBits;
  }
  [[nodiscard]] static constexpr bool is_small(std::int64_t value) noexcept {
    return value >= -(std::int64_t{1} << (63 - kKindBits)) && value < std::int64_t{1}
                                                                          << (63 - kKindBits);
  }
  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }

  constexpr explicit operator bool() const noexcept { return kind() != Kind::kAbsent; }
  friend bool operator==(const Ref&, const Ref&) = default;

 private:
  static constexpr unsigned kKindBits = 4;
  std::uint64_t bits_ = 0;
};

// Python's name of the type: "int", "str".
[[nodiscard]] std::string_view type_name(Ref value) noexcept;

class PickleData {
 public:
  static constexpr std::uint32_t kNoPart = UINT32_MAX;

  struct Part {
    std::uint64_t values = 0;  // begin in the array of values; as many as the shape has keys
    std::uint32_t shape = 0;
    std::uint32_t next = kNoPart;
  };

  // Its arrays are taken from the budget.
  PickleData(std::span<const std::byte> input, Budget& budget);

  [[nodiscard]] static Ref make_bool(bool value) { return {Kind::kBool, value ? 1U : 0U}; }
  [[nodiscard]] Ref make_int(std::int64_t value) {
    if (Ref::is_small(value)) return {Kind::kInt, static_cast<std::uint64_t>(value)};
    return make_big(value);
  }
  [[nodiscard]] Ref make_unsigned(std::uint64_t value);
  [[nodiscard]] Ref make_float(double value);
  [[nodiscard]] Ref make_string(std::uint64_t offset, std::uint64_t size);
  // `offset` is where the file makes the container, for messages.
  [[nodiscard]] Ref make_list(std::uint64_t offset);
  [[nodiscard]] Ref make_tuple(std::uint64_t offset, std::span<const Ref> items);
  [[nodiscard]] Ref make_dict(std::uint64_t offset) {
    dicts_.push_back({.offset = offset});
    return {Kind::kDict, dicts_.size() - 1};
  }
  void append(Ref list, std::span<const Ref> items);
  // Keys and values in turn, at least one of each.
  void set(Ref dict, std::span<const Ref> pairs);
  // The same, for the keys of a shape.
  void set_shaped(Ref dict, std::uint32_t shape, std::span<const Ref> values) {
    add_part(dict, shape);
    values_.insert(values_.end(), values.begin(), values.end());
  }

  [[nodiscard]] std::uint64_t input_bytes() const noexcept { return input_.size(); }
  // Of a kInt or kBigInt.
  [[nodiscard]] std::int64_t integer(Ref value) const {
    return value.kind() == Kind::kInt ? value.small() : big_ints_[value.index()];
  }
  [[nodiscard]] std::uint64_t unsigned_integer(Ref value) const {
    return unsigneds_[value.index()];
  }
  [[nodiscard]] double real(Ref value) const { return floats_[value.index()]; }
  [[nodiscard]] std::string_view text(Ref value) const {
    const Text& text = texts_[value.index()];
    return input_.substr(text.offset, text.size);
  }
  [[nodiscard]] std::span<const Ref> items(Ref list) const {
    const List& found = lists_[list.index()];
    return {items_.data() + found.begin, found.size};
  }
  // The first part of a dictionary, or null if it is empty; then the one behind a part.
  [[nodiscard]] const Part* first_part(Ref dict) const {
    return part_at(dicts_[dict.index()].first_part);
  }
  [[nodiscard]] const Part* next_part(const Part& part) const { return part_at(part.next); }
  [[nodiscard]] std::span<const Ref> keys(std::uint32_t shape) const {
    return {keys_.data() + shapes_[shape].begin, shapes_[shape].size};
  }
  [[nodiscard]] std::span<const Ref> values(const Part& part) const {
    return {values_.data() + part.values, shapes_[part.shape].size};
  }
  [[nodiscard]] std::size_t shape_count() const noexcept { return shapes_.size(); }
  [[nodiscard]] std::size_t list_count() const noexcept { return lists_.size(); }
  [[nodiscard]] std::size_t text_count() const noexcept { return texts_.size(); }
  // Where the file makes a list, tuple, dictionary or string; 0 of anything else.
  [[nodiscard]] std::uint64_t offset(Ref value) const;

 private:
  struct Text {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  struct List {
    std::uint64_t begin = 0;
    std::uint32_t size = 0;
    std::uint32_t capacity = 0;
    std::uint64_t offset = 0;
  };
  struct Dict {
    std::uint64_t offset = 0;
    std::uint32_t first_part = kNoPart;
    std::uint32_t last_part = kNoPart;
  };
  struct Shape {
    std::uint64_t begin = 0;
    std::uint32_t size = 0;
  };

  [[nodiscard]] Ref make_big(std::int64_t value);
  void add_part(Ref dict, std::uint32_t shape);
  void make_room(List& list, std::size_t count);
  [[nodiscard]] std::uint32_t shape_of(std::span<const Ref> pairs);
  [[nodiscard]] bool has_keys(const Shape& shape, std::span<const Ref> pairs) const;
  [[nodiscard]] const Part* part_at(std::uint32_t index) const {
    return index == kNoPart ? nullptr : &parts_[index];
  }

  std::string_view input_;
  BigVector<std::int64_t> big_ints_;
  BigVector<std::uint64_t> unsigneds_;
  BigVector<double> floats_;
  BigVector<Text> texts_;
  BigVector<List> lists_;
  BigVector<Ref> items_;  // of lists and tuples
  BigVector<Dict> dicts_;
  BigVector<Part> parts_;
  BigVector<Ref> values_;  // of dictionaries
  BigVector<Shape> shapes_;
  BigVector<Ref> keys_;  // of shapes
  // Shapes seen lately, by a hash of the keys. Missing one costs a second shape, nothing else.
  std::array<std::uint32_t, 256> recent_shapes_{};
};

}  // namespace headroom::trace::internal
