#include "headroom/trace/pickle/internal/pickle_data.h"

#include <algorithm>

#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {

std::string_view type_name(Ref value) noexcept {
  switch (value.kind()) {
    case Kind::kAbsent:
      return "nothing";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kUnsigned:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
  }
  return "?";
}

PickleData::PickleData(std::span<const std::byte> input, Budget& budget)
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes seen as text
    : input_(reinterpret_cast<const char*>(input.data()), input.size()),
      big_ints_(budget),
      unsigneds_(budget),
      floats_(budget),
      texts_(budget),
      lists_(budget),
      items_(budget),
      dicts_(budget),
      parts_(budget),
      values_(budget),
      shapes_(budget),
      keys_(budget) {
  // Address space, not memory: real snapshots have a value per 9 bytes and a dictionary per 70.
  values_.reserve(input.size() / 8);
  dicts_.reserve(input.size() / 64);
  parts_.reserve(input.size() / 64);
  items_.reserve(input.size() / 64);
}

Ref PickleData::make_big(std::int64_t value) {
  big_ints_.push_back(value);
  return {Kind::kBigInt, big_ints_.size() - 1};
}

Ref PickleData::make_unsigned(std::uint64_t value) {
  if (value <= INT64_MAX) return make_int(static_cast<std::int64_t>(value));
  unsigneds_.push_back(value);
  return {Kind::kUnsigned, unsigneds_.size() - 1};
}

Ref PickleData::make_float(double value) {
  floats_.push_back(value);
  return {Kind::kFloat, floats_.size() - 1};
}

Ref PickleData::make_string(std::uint64_t offset, std::uint64_t size) {
  texts_.push_back({.offset = offset, .size = size});
  return {Kind::kString, texts_.size() - 1};
}

Ref PickleData::make_list(std::uint64_t offset) {
  lists_.push_back({.offset = offset});
  return {Kind::kList, lists_.size() - 1};
}

Ref PickleData::make_tuple(std::uint64_t offset, std::span<const Ref> items) {
  const Ref list = make_list(offset);
  append(list, items);
  return {Kind::kTuple, list.index()};
}

void PickleData::append(Ref list, std::span<const Ref> items) {
  List& to = lists_[list.index()];
  make_room(to, items.size());
  std::ranges::copy(items, items_.begin() + static_cast<std::ptrdiff_t>(to.begin + to.size));
  to.size += static_cast<std::uint32_t>(items.size());
}

void PickleData::make_room(List& list, std::size_t count) {
  const std::uint64_t wanted = std::uint64_t{list.size} + count;
  if (wanted <= list.capacity) return;
  if (wanted > UINT32_MAX / 2) fail("a list has more than two thousand million items", list.offset);
  if (list.begin + list.capacity != items_.size()) {
    // Something lies behind it: it moves to the end, with room so that it moves seldom.
    const std::uint64_t from = list.begin;
    list.begin = items_.size();
    list.capacity = list.size == 0 ? static_cast<std::uint32_t>(count)
                                   : static_cast<std::uint32_t>(std::max<std::uint64_t>(
                                         wanted, std::uint64_t{list.size} * 2));
    items_.resize(list.begin + list.capacity);
    std::copy_n(items_.begin() + static_cast<std::ptrdiff_t>(from),
                list.size,
                items_.begin() + static_cast<std::ptrdiff_t>(list.begin));
    return;
  }
  list.capacity = static_cast<std::uint32_t>(wanted);
  items_.resize(list.begin + wanted);
}

void PickleData::set(Ref dict, std::span<const Ref> pairs) {
  if (pairs.size() > UINT32_MAX) fail("a dictionary has more than two thousand million keys");
  add_part(dict, shape_of(pairs));
  for (std::size_t i = 1; i < pairs.size(); i += 2) values_.push_back(pairs[i]);
}

void PickleData::add_part(Ref dict, std::uint32_t shape) {
  if (parts_.size() >= kNoPart) fail("there are more than four thousand million dictionaries");
  const auto part = static_cast<std::uint32_t>(parts_.size());
  parts_.push_back({.values = values_.size(), .shape = shape});
  Dict& to = dicts_[dict.index()];
  if (to.first_part == kNoPart) {
    to.first_part = part;
  } else {
    parts_[to.last_part].next = part;
  }
  to.last_part = part;
}

bool PickleData::has_keys(const Shape& shape, std::span<const Ref> pairs) const {
  if (shape.size != pairs.size() / 2) return false;
  const Ref* key = keys_.data() + shape.begin;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (pairs[i] != *key++) return false;
  }
  return true;
}

std::uint32_t PickleData::shape_of(std::span<const Ref> pairs) {
  const std::uint64_t mixed =
      pairs.front().bits() * 3 + pairs[pairs.size() - 2].bits() * 5 + pairs.size();
  std::uint32_t& recent = recent_shapes_[(mixed ^ mixed >> 8U) % recent_shapes_.size()];
  if (recent < shapes_.size() && has_keys(shapes_[recent], pairs)) return recent;
  recent = static_cast<std::uint32_t>(shapes_.size());
  shapes_.push_back({.begin = keys_.size(), .size = static_cast<std::uint32_t>(pairs.size() / 2)});
  for (std::size_t i = 0; i < pairs.size(); i += 2) keys_.push_back(pairs[i]);
  return recent;
}

std::uint64_t PickleData::offset(Ref value) const {
  switch (value.kind()) {
    case Kind::kString:
      return texts_[value.index()].offset;
    case Kind::kList:
    case Kind::kTuple:
      return lists_[value.index()].offset;
    case Kind::kDict:
      return dicts_[value.index()].offset;
    default:
      return 0;
  }
}

}  // namespace headroom::trace::internal
