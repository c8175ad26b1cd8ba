// Runs the opcodes of a pickle that hold data, and refuses all others: nothing in a file can
// import, build or call anything, because there is no code here that could.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/internal/memo.h"
#include "headroom/trace/internal/pickle_data.h"
#include "headroom/trace/internal/pickle_opcodes.h"
#include "headroom/trace/progress.h"

namespace headroom::trace::internal {

class PickleMachine {
 public:
  // `data` is made of the same input.
  PickleMachine(std::span<const std::byte> input, PickleData& data, Progress progress);

  // Reads up to STOP and gives what is on the stack then. Throws Failure.
  [[nodiscard]] Ref run();
  // Where the byte behind STOP is.
  [[nodiscard]] std::uint64_t end_offset() const noexcept { return offset(); }

 private:
  void check_protocol();
  void step_other(Opcode opcode);
  void step_string(Opcode opcode);
  void step_container(Opcode opcode);

  [[nodiscard]] std::uint64_t offset() const noexcept {
    return static_cast<std::uint64_t>(at_ - begin_);
  }
  [[nodiscard]] std::uint64_t opcode_offset() const noexcept {
    return static_cast<std::uint64_t>(opcode_at_ - begin_);
  }
  [[noreturn]] void fail_here(const std::string& what) const;
  [[noreturn]] void fail_truncated() const;
  void need(std::uint64_t bytes) const {
    if (static_cast<std::uint64_t>(end_ - at_) < bytes) fail_truncated();
  }
  template <class T>
  [[nodiscard]] T take();

  void push(Ref value) { stack_.push_back(value); }
  // The values above the last mark, and those below it, are out of an opcode's reach.
  void need_values(std::size_t count) const {
    if (stack_.size() - floor_ < count) fail_here("finds too few values on the stack");
  }
  [[nodiscard]] Ref top() const {
    need_values(1);
    return stack_.back();
  }
  [[nodiscard]] Ref take_from_memo(std::uint32_t number) const;
  void mark();
  [[nodiscard]] std::span<const Ref> above_mark() const;
  void pop_mark();
  void pop();

  void push_long(std::uint64_t size);
  void push_text(std::uint64_t size, bool is_ascii_only);
  void push_float();
  void push_tuple(std::size_t count);
  void push_marked(Kind kind);
  void append_one();
  void append_marked();
  void set_one();
  void set_marked();
  void set_items(Ref dict, std::span<const Ref> pairs);
  void report_progress();
  [[nodiscard]] Ref finish();

  const std::uint8_t* begin_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  const std::uint8_t* opcode_at_;
  const std::uint8_t* next_report_;
  std::size_t floor_ = 0;  // the last mark's place on the stack
  std::vector<Ref> stack_;
  std::vector<std::size_t> floors_;  // of the marks below
  PickleData& data_;
  Memo memo_;
  Progress progress_;
};

}  // namespace headroom::trace::internal
