// The part of the machine that reads nearly all of a real snapshot: what step() does too, for the
// opcodes that events are made of, with less to check.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "headroom/trace/pickle/internal/pickle_machine.h"

namespace headroom::trace::internal {
namespace {

// A key, a value with its MEMOIZE and what is looked at behind them are less than this; nearer to
// the end every byte is checked for.
constexpr std::uint64_t kFastMargin = 96;
constexpr std::uint8_t kFastText = 64;

bool is_at(Opcode opcode, const std::uint8_t* at) {
  return *at == static_cast<std::uint8_t>(opcode);
}

template <class T>
T read_at(const std::uint8_t* at) {
  // As pickle writes all of its numbers but floats.
  static_assert(std::endian::native == std::endian::little);
  T value{};
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Sign-extends the `size` bytes at `at`, 1 to 8, of which 8 can be read.
std::int64_t read_long(const std::uint8_t* at, unsigned size) {
  const unsigned unused = 64 - 8 * size;
  return static_cast<std::int64_t>(read_at<std::uint64_t>(at) << unused) >> unused;
}

}  // namespace

// The value of the opcode at `at`, which moves behind it; absent for any other opcode.
inline Ref PickleMachine::fast_value(const std::uint8_t*& at) {
  const std::uint8_t* const from = at;
  switch (static_cast<Opcode>(*from)) {
    case Opcode::kBinGet:
      at = from + 2;
      return memo_.get_near(from[1]);
    case Opcode::kLongBinGet:
      at = from + 5;
      return memo_.get_near(read_at<std::uint32_t>(from + 1));
    case Opcode::kBinInt1:
      at = from + 2;
      return data_.make_int(from[1]);
    case Opcode::kBinInt2:
      at = from + 3;
      return data_.make_int(read_at<std::uint16_t>(from + 1));
    case Opcode::kBinInt:
      at = from + 5;
      return data_.make_int(read_at<std::int32_t>(from + 1));
    case Opcode::kLong1:
      if (from[1] - 1U >= 8) return {};
      at = from + 2 + from[1];
      return data_.make_int(read_long(from + 2, from[1]));
    case Opcode::kShortBinUnicode:
      if (from[1] > kFastText) return {};
      at = from + 2 + from[1];
      return recent_text(from + 2, from[1]);
    case Opcode::kEmptyDict:
      at = from + 1;
      return data_.make_dict(static_cast<std::uint64_t>(from - begin_));
    default:
      return {};
  }
}

Ref PickleMachine::fast_dict(const std::uint8_t*& at) {
  // Files in which it fails more often than not have other dictionaries than these.
  if (template_misses_ > template_hits_ + 100) return {};
  if (memo_.is_overwritten()) return {};  // templates name keys by their numbers
  const std::uint8_t* first = at + 1;
  const bool is_memoized = is_at(Opcode::kMemoize, first);
  if (is_memoized) ++first;
  if (!is_at(Opcode::kMark, first++)) return {};
  for (std::size_t i = 0; i < templates_.size(); ++i) {
    const std::size_t which = (last_template_ + i) % templates_.size();
    if (templates_[which].size == 0) continue;
    if (const Ref dict = try_template(templates_[which], at, first, is_memoized)) {
      last_template_ = which;
      ++template_hits_;
      return dict;
    }
  }
  ++template_misses_;
  return {};
}

// Changes nothing unless all of it fits.
inline Ref PickleMachine::try_template(const DictTemplate& form,
                                       const std::uint8_t*& begin,
                                       const std::uint8_t* first,
                                       bool is_memoized) {
  const std::uint8_t* const stop = end_ - kFastMargin;
  const std::uint8_t* at = first;
  std::array<Ref, DictTemplate::kMaxKeys> values;
  std::array<Ref, DictTemplate::kMaxKeys> memoized;  // strings, to be put after the dictionary
  std::size_t memoized_count = 0;
  for (std::size_t i = 0; i < form.size; ++i) {
    if (at >= stop || !form.keys[i].is_at(at)) return {};
    at += form.keys[i].length;
    if (is_at(Opcode::kEmptyDict, at)) return {};
    const Ref value = fast_value(at);
    if (!value) return {};
    values[i] = value;
    if (is_at(Opcode::kMemoize, at)) {
      memoized[memoized_count++] = value;
      ++at;
    }
  }
  if (!is_at(Opcode::kSetItems, at)) return {};
  const Ref dict = data_.make_dict(static_cast<std::uint64_t>(begin - begin_));
  data_.set_shaped(dict, form.shape, {values.data(), form.size});
  begin = at + 1;
  if (is_memoized) memo_.add(dict, offset());
  for (std::size_t i = 0; i < memoized_count; ++i) memo_.add(memoized[i], offset());
  return dict;
}

// The dictionary that began at `dict_at_` and ends with the SETITEMS at `end`.
void PickleMachine::learn(const std::uint8_t* end) {
  if (dict_at_ == nullptr || depth_ == 0) return;
  const std::uint8_t* first = dict_at_ + 1;
  dict_at_ = nullptr;
  if (is_at(Opcode::kMemoize, first)) ++first;
  if (!is_at(Opcode::kMark, first++)) return;
  const PickleData::Part* part = data_.first_part(stack_[depth_ - 1]);
  if (part == nullptr) return;
  const auto is_same = [part](const DictTemplate& form) {
    return form.size != 0 && form.shape == part->shape;
  };
  if (std::ranges::any_of(templates_, is_same)) return;
  DictTemplate form;
  if (!form.learn(first, end, part->shape) || !names_its_keys(form)) return;
  templates_[next_template_] = form;
  next_template_ = (next_template_ + 1) % templates_.size();
}

// Whether the bytes mean what the shape says: all that comes later trusts in it.
bool PickleMachine::names_its_keys(const DictTemplate& form) const {
  const auto keys = data_.keys(form.shape);
  if (keys.size() != form.size) return false;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (memo_.get_near(form.keys[i].number) != keys[i]) return false;
  }
  return true;
}

void PickleMachine::run_fast() {
  if (static_cast<std::uint64_t>(end_ - at_) < kFastMargin) return;
  const std::uint8_t* const stop = std::min(next_report_, end_ - kFastMargin);
  const std::uint8_t* at = at_;  // here, and not in the object, so that it stays in a register
  std::size_t depth = depth_;
  for (; at < stop && depth < stack_.size(); at_ = at, depth_ = depth) {
    if (static_cast<Opcode>(*at) == Opcode::kEmptyDict) {
      if (const Ref dict = fast_dict(at)) {
        stack_[depth++] = dict;
        continue;
      }
      dict_at_ = at;
    }
    if (const Ref value = fast_value(at)) {
      stack_[depth++] = value;
      continue;
    }
    at = at_;
    switch (static_cast<Opcode>(*at)) {
      case Opcode::kMemoize:
        if (depth == floor_) return;
        memo_.add(stack_[depth - 1], offset());
        break;
      case Opcode::kMark:
        mark();
        break;
      case Opcode::kSetItems:
        opcode_at_ = at;
        set_marked();
        depth = depth_;
        learn(at);
        break;
      default:
        return;
    }
    ++at;
  }
}

}  // namespace headroom::trace::internal
