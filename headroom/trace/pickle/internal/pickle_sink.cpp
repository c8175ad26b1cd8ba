#include "headroom/trace/pickle/internal/pickle_sink.h"

#include <bit>
#include <cstring>
#include <utility>
#include <variant>

#include "headroom/base/check.h"
#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {

PickleSink::PickleSink() {
  opcode(Opcode::kProto);
  out_.push_back(4);
}

std::string PickleSink::finish() && {
  opcode(Opcode::kStop);
  return std::move(out_);
}

template <class T>
void PickleSink::number(T value) {
  static_assert(std::endian::native == std::endian::little);
  const std::size_t at = out_.size();
  out_.resize(at + sizeof(T));
  std::memcpy(out_.data() + at, &value, sizeof(T));
}

void PickleSink::integer(std::int64_t value) {
  if (value >= 0) return size(static_cast<std::uint64_t>(value));
  if (value >= INT32_MIN) {
    opcode(Opcode::kBinInt);
    return number(static_cast<std::int32_t>(value));
  }
  // As few bytes as keep the sign.
  unsigned bytes = 5;
  while (bytes < 8 && value < -(std::int64_t{1} << (8 * bytes - 1))) ++bytes;
  opcode(Opcode::kLong1);
  out_.push_back(static_cast<char>(bytes));
  number(value);
  out_.resize(out_.size() - (8 - bytes));
}

void PickleSink::size(std::uint64_t value) {
  if (value <= UINT8_MAX) {
    opcode(Opcode::kBinInt1);
    return number(static_cast<std::uint8_t>(value));
  }
  if (value <= UINT16_MAX) {
    opcode(Opcode::kBinInt2);
    return number(static_cast<std::uint16_t>(value));
  }
  if (value <= INT32_MAX) {
    opcode(Opcode::kBinInt);
    return number(static_cast<std::uint32_t>(value));
  }
  const auto bytes = static_cast<unsigned>(std::bit_width(value)) / 8 + 1;
  opcode(Opcode::kLong1);
  out_.push_back(static_cast<char>(bytes));
  number(value);
  out_.resize(out_.size() - 8 + std::min(bytes, 8U));
  if (bytes > 8) out_.push_back(0);
}

void PickleSink::real(double value) {
  opcode(Opcode::kBinFloat);
  number(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
}

void PickleSink::text(std::string_view value) {
  if (value.size() > UINT32_MAX) {
    fail("a string is larger than 4 GiB, which PyTorch's viewer does not read");
  }
  if (value.size() <= UINT8_MAX) {
    opcode(Opcode::kShortBinUnicode);
    number(static_cast<std::uint8_t>(value.size()));
  } else {
    opcode(Opcode::kBinUnicode);
    number(static_cast<std::uint32_t>(value.size()));
  }
  out_ += value;
}

void PickleSink::pair(std::uint64_t first, std::uint64_t second) {
  size(first);
  size(second);
  opcode(Opcode::kTuple2);
}

void PickleSink::put(std::uint32_t memo_number) {
  if (memo_number <= UINT8_MAX) {
    opcode(Opcode::kBinPut);
    return number(static_cast<std::uint8_t>(memo_number));
  }
  opcode(Opcode::kLongBinPut);
  number(memo_number);
}

void PickleSink::get(std::uint32_t memo_number) {
  if (memo_number <= UINT8_MAX) {
    opcode(Opcode::kBinGet);
    return number(static_cast<std::uint8_t>(memo_number));
  }
  opcode(Opcode::kLongBinGet);
  number(memo_number);
}

bool PickleSink::again(Slot slot) {
  if (slot != 0) get(slot);
  return slot != 0;
}

void PickleSink::remember(Slot& slot) {
  slot = next_slot_++;
  put(slot);
}

void PickleSink::literal(std::string_view literal) {
  const auto [at, is_new] =
      literals_.try_emplace(literal, static_cast<std::uint32_t>(literals_.size()));
  if (!is_new) return get(at->second);
  HEADROOM_CHECK(at->second < kFirstSlot, "more literals than have a number");
  text(literal);
  put(at->second);
}

void PickleSink::shared_text(std::string_view value, Slot& slot) {
  if (again(slot)) return;
  text(value);
  remember(slot);
}

void PickleSink::begin_dict() {
  opcode(Opcode::kEmptyDict);
  opcode(Opcode::kMark);
}

void PickleSink::members(const Value::Dict& dict) {
  for (const auto& [key, member] : dict) {
    shared_text(key, value_texts_[key]);
    value(member);
  }
}

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

void PickleSink::value(const Value& value) {
  std::visit(Overloaded{[this](std::monostate) { none(); },
                        [this](bool flag) { boolean(flag); },
                        [this](std::int64_t number) { integer(number); },
                        [this](std::uint64_t number) { size(number); },
                        [this](double number) { real(number); },
                        [this](const std::string& text) { shared_text(text, value_texts_[text]); },
                        [this](const Value::List& items) {
                          list(items.size(), [&](std::size_t i) { this->value(items[i]); });
                        },
                        [this](const Value::Tuple& tuple) {
                          opcode(Opcode::kMark);
                          for (const Value& item : tuple.items) this->value(item);
                          opcode(Opcode::kTuple);
                        },
                        [this](const Value::Dict& dict) {
                          begin_dict();
                          members(dict);
                          end_dict();
                        }},
             value.data);
}

}  // namespace headroom::trace::internal
