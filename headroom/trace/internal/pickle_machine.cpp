#include "headroom/trace/internal/pickle_machine.h"

#include <bit>
#include <cstring>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/failure.h"
#include "headroom/trace/internal/utf8.h"

namespace headroom::trace::internal {
namespace {

constexpr std::uint64_t kReportBytes = 4_MiB;

}  // namespace

PickleMachine::PickleMachine(std::span<const std::byte> input, PickleData& data, Progress progress)
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes seen as numbers
    : begin_(reinterpret_cast<const std::uint8_t*>(input.data())),
      at_(begin_),
      end_(begin_ + input.size()),
      opcode_at_(begin_),
      next_report_(begin_),
      data_(data),
      progress_(std::move(progress)) {}

void PickleMachine::fail_here(const std::string& what) const {
  fail("opcode " + name_of(static_cast<Opcode>(*opcode_at_)) + " " + what, opcode_offset());
}

void PickleMachine::fail_truncated() const {
  if (opcode_at_ == end_) fail("the file ends before its STOP: it was cut off", opcode_offset());
  fail_here("wants more bytes than are left: the file was cut off, or is damaged");
}

// Little-endian, as pickle writes all of its numbers but floats.
template <class T>
T PickleMachine::take() {
  need(sizeof(T));
  T value{};
  std::memcpy(&value, at_, sizeof(T));
  static_assert(std::endian::native == std::endian::little);
  at_ += sizeof(T);
  return value;
}

void PickleMachine::check_protocol() {
  opcode_at_ = at_ - 1;
  const auto protocol = take<std::uint8_t>();
  if (protocol < 2 || protocol > 5) {
    fail_here("asks for protocol " + std::to_string(protocol) +
              ", and 2 to 5 are read: save the snapshot with protocol 4");
  }
}

Ref PickleMachine::run() {
  if (at_ == end_ || *at_ != static_cast<std::uint8_t>(Opcode::kProto)) {
    fail("this is not a pickle of protocol 2 to 5, which begins with the byte 0x80", 0);
  }
  for (;;) {
    opcode_at_ = at_;
    const auto opcode = static_cast<Opcode>(take<std::uint8_t>());
    switch (opcode) {  // by how often real snapshots have them
      case Opcode::kBinGet:
        push(take_from_memo(take<std::uint8_t>()));
        break;
      case Opcode::kBinInt1:
        push(data_.make_int(take<std::uint8_t>()));
        break;
      case Opcode::kBinInt2:
        push(data_.make_int(take<std::uint16_t>()));
        break;
      case Opcode::kBinInt:
        push(data_.make_int(take<std::int32_t>()));
        break;
      case Opcode::kLong1:
        push_long(take<std::uint8_t>());
        break;
      case Opcode::kMemoize:
        memo_.add(top(), offset());
        break;
      case Opcode::kMark:
        mark();
        break;
      case Opcode::kEmptyDict:
        push(data_.make_dict(opcode_offset()));
        if (at_ >= next_report_) report_progress();
        break;
      case Opcode::kSetItems:
        set_marked();
        break;
      case Opcode::kStop:
        return finish();
      default:
        step_other(opcode);
    }
  }
}

void PickleMachine::step_other(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNone:
      return push({Kind::kNone, 0});
    case Opcode::kNewTrue:
      return push(PickleData::make_bool(true));
    case Opcode::kNewFalse:
      return push(PickleData::make_bool(false));
    case Opcode::kLong4:
      return push_long(take<std::uint32_t>());
    case Opcode::kBinFloat:
      return push_float();
    case Opcode::kLongBinGet:
      return push(take_from_memo(take<std::uint32_t>()));
    case Opcode::kBinPut:
      return memo_.put(take<std::uint8_t>(), top(), offset());
    case Opcode::kLongBinPut:
      return memo_.put(take<std::uint32_t>(), top(), offset());
    case Opcode::kPop:
      return pop();
    case Opcode::kPopMark:
      return pop_mark();
    case Opcode::kDup:
      return push(top());
    case Opcode::kProto:
      return check_protocol();
    case Opcode::kFrame:
      return need(take<std::uint64_t>());  // frames are a help for readers of slow files
    default:
      step_string(opcode);
  }
}

void PickleMachine::step_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::kShortBinUnicode:
      return push_text(take<std::uint8_t>(), false);
    case Opcode::kBinUnicode:
      return push_text(take<std::uint32_t>(), false);
    case Opcode::kBinUnicode8:
      return push_text(take<std::uint64_t>(), false);
    case Opcode::kShortBinString:  // Python 2's str, which Python 3 reads as ASCII
      return push_text(take<std::uint8_t>(), true);
    case Opcode::kBinString:
      return push_text(take<std::uint32_t>(), true);
    default:
      step_container(opcode);
  }
}

void PickleMachine::step_container(Opcode opcode) {
  switch (opcode) {
    case Opcode::kEmptyList:
      return push(data_.make_list(opcode_offset()));
    case Opcode::kAppend:
      return append_one();
    case Opcode::kAppends:
      return append_marked();
    case Opcode::kEmptyTuple:
      return push_tuple(0);
    case Opcode::kTuple1:
      return push_tuple(1);
    case Opcode::kTuple2:
      return push_tuple(2);
    case Opcode::kTuple3:
      return push_tuple(3);
    case Opcode::kTuple:
      return push_marked(Kind::kTuple);
    case Opcode::kList:
      return push_marked(Kind::kList);
    case Opcode::kDict:
      return push_marked(Kind::kDict);
    case Opcode::kSetItem:
      return set_one();
    default:
      fail_here(std::string(refusal_of(opcode)));
  }
}

Ref PickleMachine::take_from_memo(std::uint32_t number) const {
  const Ref value = memo_.get(number);
  if (!value) fail_here("asks for number " + format_count(number) + " of the memo, which is empty");
  return value;
}

void PickleMachine::mark() {
  floors_.push_back(floor_);
  floor_ = stack_.size();
}

std::span<const Ref> PickleMachine::above_mark() const {
  if (floors_.empty()) fail_here("finds no mark on the stack");
  return std::span(stack_).subspan(floor_);
}

void PickleMachine::pop_mark() {
  if (floors_.empty()) fail_here("finds no mark on the stack");
  stack_.resize(floor_);
  floor_ = floors_.back();
  floors_.pop_back();
}

void PickleMachine::pop() {
  if (!floors_.empty() && stack_.size() == floor_) return pop_mark();
  need_values(1);
  stack_.pop_back();
}

// Two's complement, the shortest that holds the number, or longer.
void PickleMachine::push_long(std::uint64_t size) {
  need(size);
  const std::uint8_t* bytes = at_;
  at_ += size;
  if (size - 1 < 8 && end_ - bytes >= 8) {  // as always, but near the end
    std::int64_t value = 0;
    std::memcpy(&value, bytes, 8);
    const auto unused = static_cast<unsigned>(64 - 8 * size);
    return push(data_.make_int(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << unused) >> unused));
  }
  const std::uint8_t sign = size > 0 && (bytes[size - 1] & 0x80U) != 0 ? 0xff : 0;
  while (size > 8 && bytes[size - 1] == sign) --size;
  std::uint64_t bits = sign != 0 ? UINT64_MAX : 0;
  if (size > 8) fail_here("holds an integer of more than 64 bits");
  std::memcpy(&bits, bytes, size);
  const bool is_negative = sign != 0;
  if (is_negative && (bits >> 63U) == 0) fail_here("holds an integer of more than 64 bits");
  push(is_negative ? data_.make_int(static_cast<std::int64_t>(bits)) : data_.make_unsigned(bits));
}

void PickleMachine::push_text(std::uint64_t size, bool is_ascii_only) {
  need(size);
  const Ref text = data_.make_string(offset(), size);
  const std::string_view view = data_.text(text);
  if (is_ascii_only ? !is_ascii(view) : !is_utf8(view)) {
    fail_here(is_ascii_only ? "holds a string that is not ASCII"
                            : "holds a string that is not UTF-8");
  }
  at_ += size;
  push(text);
}

void PickleMachine::push_float() {
  auto bits = __builtin_bswap64(take<std::uint64_t>());
  push(data_.make_float(std::bit_cast<double>(bits)));
}

void PickleMachine::push_tuple(std::size_t count) {
  need_values(count);
  const Ref tuple =
      data_.make_tuple(opcode_offset(), std::span(stack_).subspan(stack_.size() - count));
  stack_.resize(stack_.size() - count);
  push(tuple);
}

void PickleMachine::push_marked(Kind kind) {
  const std::span<const Ref> items = above_mark();
  if (kind == Kind::kDict) {
    const Ref dict = data_.make_dict(opcode_offset());
    set_items(dict, items);
    pop_mark();
    return push(dict);
  }
  const Ref tuple = data_.make_tuple(opcode_offset(), items);
  pop_mark();
  push({kind, tuple.index()});
}

void PickleMachine::append_one() {
  need_values(2);
  const Ref list = stack_[stack_.size() - 2];
  if (list.kind() != Kind::kList) fail_here("wants a list below the value, and finds another type");
  data_.append(list, std::span(stack_).last(1));
  stack_.pop_back();
}

void PickleMachine::append_marked() {
  const std::span<const Ref> items = above_mark();
  const std::size_t below = floor_;
  if (below <= floors_.back() || stack_[below - 1].kind() != Kind::kList) {
    fail_here("wants a list below the mark");
  }
  data_.append(stack_[below - 1], items);
  pop_mark();
}

void PickleMachine::set_one() {
  need_values(3);
  const Ref dict = stack_[stack_.size() - 3];
  if (dict.kind() != Kind::kDict) fail_here("wants a dictionary below the key");
  set_items(dict, std::span(stack_).last(2));
  stack_.resize(stack_.size() - 2);
}

void PickleMachine::set_marked() {
  const std::span<const Ref> pairs = above_mark();
  const std::size_t below = floor_;
  if (below <= floors_.back() || stack_[below - 1].kind() != Kind::kDict) {
    fail_here("wants a dictionary below the mark");
  }
  set_items(stack_[below - 1], pairs);
  pop_mark();
}

void PickleMachine::set_items(Ref dict, std::span<const Ref> pairs) {
  if (pairs.size() % 2 != 0) fail_here("finds a key without a value");
  if (!pairs.empty()) data_.set(dict, pairs);
}

void PickleMachine::report_progress() {
  next_report_ = static_cast<std::uint64_t>(end_ - at_) > kReportBytes ? at_ + kReportBytes : end_;
  if (progress_) {
    progress_(static_cast<double>(offset()) / static_cast<double>(data_.input_bytes()));
  }
}

Ref PickleMachine::finish() {
  if (stack_.size() != 1 || !floors_.empty()) {
    fail_here("comes with " + format_count(stack_.size()) + " values on the stack instead of one");
  }
  return stack_.back();
}

}  // namespace headroom::trace::internal
