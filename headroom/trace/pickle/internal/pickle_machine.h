// Runs the opcodes of a pickle that hold data, and refuses all others: nothing in a file can
// import, build or call anything, because there is no code here that could.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/pickle/internal/dict_template.h"
#include "headroom/trace/pickle/internal/memo.h"
#include "headroom/trace/pickle/internal/pickle_data.h"
#include "headroom/trace/pickle/internal/pickle_opcodes.h"
#include "headroom/trace/progress.h"

namespace headroom::trace::internal {

class PickleMachine {
 public:
  // `data` is made of the same input.
  PickleMachine(std::span<const std::byte> input,
                PickleData& data,
                Budget& budget,
                Progress progress);

  // Reads up to STOP and gives what is on the stack then. Throws Failure, with where it was.
  [[nodiscard]] Ref run();
  // Where the byte behind STOP is.
  [[nodiscard]] std::uint64_t end_offset() const noexcept { return offset(); }

 private:
  // The opcodes that events are made of, as long as nothing is unusual. Whatever it does not do,
  // an error above all, is left to step().
  void run_fast();
  [[nodiscard]] Ref fast_value(const std::uint8_t*& at);
  [[nodiscard]] Ref fast_dict(const std::uint8_t*& at);
  [[nodiscard]] Ref try_template(const DictTemplate& form,
                                 const std::uint8_t*& begin,
                                 const std::uint8_t* first,
                                 bool is_memoized);
  void learn(const std::uint8_t* end);
  [[nodiscard]] bool names_its_keys(const DictTemplate& form) const;
  [[nodiscard]] Ref run_to_stop();
  // One opcode, whatever it is; false at STOP.
  [[nodiscard]] bool step();
  void check_protocol();
  void step_container(Opcode opcode);
  void step_rare(Opcode opcode);

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

  void push(Ref value) {
    if (depth_ == stack_.size()) stack_.resize(stack_.size() * 2);
    stack_[depth_++] = value;
  }
  // Values below the last mark are out of an opcode's reach.
  void need_values(std::size_t count) const {
    if (depth_ - floor_ < count) fail_here("finds too few values on the stack");
  }
  [[nodiscard]] std::span<const Ref> last_values(std::size_t count) const {
    need_values(count);
    return {stack_.data() + depth_ - count, count};
  }
  [[nodiscard]] Ref top() const { return last_values(1)[0]; }
  [[nodiscard]] Ref take_from_memo(std::uint32_t number) const;
  void mark();
  void pop_mark();
  void pop();
  [[nodiscard]] std::span<const Ref> above_mark() const;
  // The value below the last mark, absent if there is none.
  [[nodiscard]] Ref below_mark() const;

  void push_long(std::uint64_t size);
  void push_text(std::uint64_t size, bool is_ascii_only);
  void push_short_text(std::uint64_t size);
  [[nodiscard]] std::size_t text_place(const std::uint8_t* bytes, std::uint64_t size) const;
  [[nodiscard]] Ref recent_text(const std::uint8_t* bytes, std::uint64_t size) const;
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
  BigVector<Ref> stack_;  // room; `depth_` of it is in use
  std::size_t depth_ = 0;
  std::size_t floor_ = 0;          // the last mark's place on the stack
  BigVector<std::size_t> floors_;  // of the marks below
  PickleData& data_;
  Memo memo_;
  // Short strings seen lately. Python makes a new "N/A" for every event; here they are one.
  std::array<Ref, 64> recent_texts_{};
  std::array<DictTemplate, 4> templates_{};
  std::size_t last_template_ = 0;
  std::size_t next_template_ = 0;
  std::uint64_t template_hits_ = 0;
  std::uint64_t template_misses_ = 0;
  const std::uint8_t* dict_at_ = nullptr;  // the last that no template fitted
  Progress progress_;
};

}  // namespace headroom::trace::internal
