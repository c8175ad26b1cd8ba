#include "headroom/trace/pickle/internal/pickle_machine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/failure.h"
#include "headroom/trace/pickle/internal/utf8.h"

namespace headroom::trace::internal {
namespace {

constexpr std::uint64_t kReportBytes = 4_MiB;

}  // namespace

PickleMachine::PickleMachine(std::span<const std::byte> input,
                             PickleData& data,
                             Budget& budget,
                             Progress progress)
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes seen as numbers
    : begin_(reinterpret_cast<const std::uint8_t*>(input.data())),
      at_(begin_),
      end_(begin_ + input.size()),
      opcode_at_(begin_),
      next_report_(begin_),
      stack_(256, budget),
      floors_(budget),
      data_(data),
      memo_(input.size(), budget),
      progress_(std::move(progress)) {}

void PickleMachine::fail_here(const std::string& what) const {
  fail("opcode " + name_of(static_cast<Opcode>(*opcode_at_)) + " " + what, opcode_offset());
}

void PickleMachine::fail_truncated() const {
  if (opcode_at_ == end_) fail("the file ends before its STOP: it was cut off", opcode_offset());
  fail_here("wants more bytes than are left: the file was cut off, or is damaged");
}

template <class T>
T PickleMachine::take() {
  need(sizeof(T));
  T value{};
  std::memcpy(&value, at_, sizeof(T));
  static_assert(std::endian::native == std::endian::little);  // as pickle, but for floats
  at_ += sizeof(T);
  return value;
}

void PickleMachine::check_protocol() {
  const auto protocol = take<std::uint8_t>();
  if (protocol < 2 || protocol > 5) {
    fail_here("asks for protocol " + std::to_string(protocol) +
              ", and 2 to 5 are read: save the snapshot with protocol 4");
  }
}

Ref PickleMachine::run() {
  try {
    return run_to_stop();
  } catch (Failure& failure) {  // of the budget, which does not know where we are
    if (!failure.error.offset) failure.error.offset = offset();
    throw;
  }
}

Ref PickleMachine::run_to_stop() {
  if (at_ == end_ || *at_ != static_cast<std::uint8_t>(Opcode::kProto)) {
    fail("this is not a pickle of protocol 2 to 5, which begins with the byte 0x80", 0);
  }
  do {
    if (at_ >= next_report_) report_progress();
    run_fast();
  } while (step());
  return finish();
}

bool PickleMachine::step() {
  opcode_at_ = at_;
  const auto opcode = static_cast<Opcode>(take<std::uint8_t>());
  switch (opcode) {
    case Opcode::kStop:
      return false;
    case Opcode::kBinGet:
      push(take_from_memo(take<std::uint8_t>()));
      return true;
    case Opcode::kLongBinGet:
      push(take_from_memo(take<std::uint32_t>()));
      return true;
    case Opcode::kBinInt1:
      push(data_.make_int(take<std::uint8_t>()));
      return true;
    case Opcode::kBinInt2:
      push(data_.make_int(take<std::uint16_t>()));
      return true;
    case Opcode::kBinInt:
      push(data_.make_int(take<std::int32_t>()));
      return true;
    case Opcode::kLong1:
      push_long(take<std::uint8_t>());
      return true;
    case Opcode::kShortBinUnicode:
      push_short_text(take<std::uint8_t>());
      return true;
    case Opcode::kMemoize:
      memo_.add(top(), offset());
      return true;
    default:
      step_container(opcode);
      return true;
  }
}

void PickleMachine::step_container(Opcode opcode) {
  switch (opcode) {
    case Opcode::kMark:
      return mark();
    case Opcode::kEmptyDict:
      return push(data_.make_dict(opcode_offset()));
    case Opcode::kSetItem:
      return set_one();
    case Opcode::kSetItems:
      return set_marked();
    case Opcode::kDict:
      return push_marked(Kind::kDict);
    case Opcode::kEmptyList:
      return push(data_.make_list(opcode_offset()));
    case Opcode::kAppend:
      return append_one();
    case Opcode::kAppends:
      return append_marked();
    case Opcode::kList:
      return push_marked(Kind::kList);
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
    default:
      step_rare(opcode);
  }
}

void PickleMachine::step_rare(Opcode opcode) {
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
    case Opcode::kBinUnicode:
      return push_text(take<std::uint32_t>(), false);
    case Opcode::kBinUnicode8:
      return push_text(take<std::uint64_t>(), false);
    case Opcode::kShortBinString:  // Python 2's str, which Python 3 reads as ASCII
      return push_text(take<std::uint8_t>(), true);
    case Opcode::kBinString:
      return push_text(take<std::uint32_t>(), true);
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
  floor_ = depth_;
}

std::span<const Ref> PickleMachine::above_mark() const {
  if (floors_.empty()) fail_here("finds no mark on the stack");
  return last_values(depth_ - floor_);
}

Ref PickleMachine::below_mark() const {
  return floor_ > floors_.back() ? stack_[floor_ - 1] : Ref{};
}

void PickleMachine::pop_mark() {
  if (floors_.empty()) fail_here("finds no mark on the stack");
  depth_ = floor_;
  floor_ = floors_.back();
  floors_.pop_back();
}

void PickleMachine::pop() {
  if (!floors_.empty() && depth_ == floor_) return pop_mark();
  need_values(1);
  --depth_;
}

// Two's complement, the shortest that holds the number, or longer.
void PickleMachine::push_long(std::uint64_t size) {
  need(size);
  const std::uint8_t* bytes = at_;
  at_ += size;
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
  recent_texts_[text_place(at_, size)] = text;
  if (is_ascii_only ? !is_ascii(view) : !is_utf8(view)) {
    fail_here(is_ascii_only ? "holds a string that is not ASCII"
                            : "holds a string that is not UTF-8");
  }
  at_ += size;
  push(text);
}

std::size_t PickleMachine::text_place(const std::uint8_t* bytes, std::uint64_t size) const {
  if (size == 0) return 0;
  const std::uint64_t mixed =
      size + bytes[0] * 7ULL + bytes[size / 2] * 13ULL + bytes[size - 1] * 31ULL;
  return mixed % recent_texts_.size();
}

Ref PickleMachine::recent_text(const std::uint8_t* bytes, std::uint64_t size) const {
  const Ref recent = recent_texts_[text_place(bytes, size)];
  if (!recent) return {};
  const std::string_view text = data_.text(recent);
  return text.size() == size && std::memcmp(text.data(), bytes, size) == 0 ? recent : Ref{};
}

void PickleMachine::push_short_text(std::uint64_t size) {
  need(size);
  const Ref known = recent_text(at_, size);
  if (!known) return push_text(size, false);
  at_ += size;
  push(known);
}

void PickleMachine::push_float() {
  const std::uint64_t bits = __builtin_bswap64(take<std::uint64_t>());  // big-endian, this one
  push(data_.make_float(std::bit_cast<double>(bits)));
}

void PickleMachine::push_tuple(std::size_t count) {
  const Ref tuple = data_.make_tuple(opcode_offset(), last_values(count));
  depth_ -= count;
  push(tuple);
}

void PickleMachine::push_marked(Kind kind) {
  const std::span<const Ref> items = above_mark();
  Ref made;
  if (kind == Kind::kDict) {
    made = data_.make_dict(opcode_offset());
    set_items(made, items);
  } else {
    made = {kind, data_.make_tuple(opcode_offset(), items).index()};
  }
  pop_mark();
  push(made);
}

void PickleMachine::append_one() {
  const std::span<const Ref> values = last_values(2);
  if (values[0].kind() != Kind::kList) fail_here("wants a list below the value");
  data_.append(values[0], values.subspan(1));
  --depth_;
}

void PickleMachine::append_marked() {
  const std::span<const Ref> items = above_mark();
  if (below_mark().kind() != Kind::kList) fail_here("wants a list below the mark");
  data_.append(below_mark(), items);
  pop_mark();
}

void PickleMachine::set_one() {
  const std::span<const Ref> values = last_values(3);
  if (values[0].kind() != Kind::kDict) fail_here("wants a dictionary below the key");
  set_items(values[0], values.subspan(1));
  depth_ -= 2;
}

void PickleMachine::set_marked() {
  const std::span<const Ref> pairs = above_mark();
  if (below_mark().kind() != Kind::kDict) fail_here("wants a dictionary below the mark");
  set_items(below_mark(), pairs);
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
  if (depth_ != 1 || !floors_.empty()) {
    fail_here("comes with " + format_count(depth_) + " values on the stack instead of one");
  }
  return stack_[0];
}

}  // namespace headroom::trace::internal
