// Writes values as pickle opcodes, those only that PyTorch's viewer knows.
//
// A repeated value is written once and then named by its number in the memo. Numbers below 256 take
// two bytes instead of five, so the first ones are kept for the keys of dictionaries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "headroom/trace/pickle/internal/pickle_opcodes.h"
#include "headroom/trace/value.h"

namespace headroom::trace::internal {

class PickleSink {
 public:
  // A place in the memo; 0 before the first use.
  using Slot = std::uint32_t;

  PickleSink();
  // Ends the pickle; this is of no use afterwards.
  [[nodiscard]] std::string finish() &&;

  void none() { opcode(Opcode::kNone); }
  void boolean(bool value) { opcode(value ? Opcode::kNewTrue : Opcode::kNewFalse); }
  void integer(std::int64_t value);
  void size(std::uint64_t value);
  void real(double value);
  void text(std::string_view value);
  void pair(std::uint64_t first, std::uint64_t second);  // a tuple
  // Of a plain value or a tree. Texts in it are written once; `value` stays until finish().
  void value(const Value& value);
  void members(const Value::Dict& dict);  // those of a dictionary that is open

  // A literal, mostly a key: one of few, so it takes a small number.
  void literal(std::string_view text);
  // Gives the number of something that was written before, or false.
  [[nodiscard]] bool again(Slot slot);
  // Remembers what was written last.
  void remember(Slot& slot);
  void shared_text(std::string_view text, Slot& slot);

  void begin_dict();
  void end_dict() { opcode(Opcode::kSetItems); }
  // `write_item(i)` writes item i.
  template <class WriteItem>
  void list(std::size_t size, WriteItem write_item) {
    opcode(Opcode::kEmptyList);
    items(size, write_item, Opcode::kAppend, Opcode::kAppends);
  }
  // The same, with the list in the memo before its items are written.
  template <class WriteItem>
  void shared_list(std::size_t size, Slot& slot, WriteItem write_item) {
    if (again(slot)) return;
    opcode(Opcode::kEmptyList);
    remember(slot);
    items(size, write_item, Opcode::kAppend, Opcode::kAppends);
  }

  [[nodiscard]] std::size_t bytes_written() const noexcept { return out_.size(); }

 private:
  static constexpr Slot kFirstSlot = 64;       // behind the literals; there are fewer
  static constexpr std::size_t kBatch = 1000;  // as Python: loaders keep a batch on their stack

  void opcode(Opcode opcode) { out_.push_back(static_cast<char>(opcode)); }
  template <class T>
  void number(T value);
  void put(std::uint32_t memo_number);
  void get(std::uint32_t memo_number);

  template <class WriteItem>
  void items(std::size_t size, WriteItem write_item, Opcode one, Opcode many) {
    for (std::size_t begin = 0; begin < size; begin += kBatch) {
      const std::size_t end = std::min(size, begin + kBatch);
      if (end - begin == 1) {
        write_item(begin);
        opcode(one);
        continue;
      }
      opcode(Opcode::kMark);
      for (std::size_t i = begin; i < end; ++i) write_item(i);
      opcode(many);
    }
  }

  std::string out_;
  std::unordered_map<std::string_view, std::uint32_t> literals_;
  std::unordered_map<std::string_view, Slot> value_texts_;
  Slot next_slot_ = kFirstSlot;
};

}  // namespace headroom::trace::internal
