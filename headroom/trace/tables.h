// Values that events share, kept once and named by a number: strings, stacks, rare fields.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::trace {

using StringId = std::uint32_t;  // 0 is the empty string
using StackId = std::uint32_t;   // 0 says that none was kept; an empty stack is another

class StringTable {
 public:
  StringTable();

  StringId intern(std::string_view text);
  [[nodiscard]] std::string_view operator[](StringId id) const { return strings_[id]; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(strings_.size());
  }

 private:
  std::deque<std::string> strings_;           // a deque, so that the views below stay
  std::map<std::string_view, StringId> ids_;  // in order: no file makes it slow
};

struct Frame {
  StringId name = 0;
  StringId file = 0;
  std::int64_t line = 0;
  std::uint32_t extras = 0;  // a value in Trace::extras: fields that have no name here

  friend auto operator<=>(const Frame&, const Frame&) = default;
};

// Stacks, innermost frame first, as PyTorch writes them.
class StackTable {
 public:
  StackTable();

  StackId intern(std::span<const Frame> frames);
  // Empty for 0 too; `id != 0` says whether a stack was kept.
  [[nodiscard]] std::span<const std::uint32_t> frame_ids(StackId id) const;
  [[nodiscard]] const Frame& frame(std::uint32_t frame_id) const { return frames_[frame_id]; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(starts_.size() - 1);
  }
  [[nodiscard]] std::uint32_t frame_count() const noexcept {
    return static_cast<std::uint32_t>(frames_.size());
  }

 private:
  std::vector<Frame> frames_;
  std::map<Frame, std::uint32_t> frame_ids_;
  std::vector<std::uint32_t> ids_;   // the stacks, one behind the other
  std::vector<std::size_t> starts_;  // stack i is ids_[starts_[i] .. starts_[i + 1])
  std::multimap<std::uint64_t, StackId> stacks_by_hash_;
};

}  // namespace headroom::trace
