// Stacks that somebody else walks, and whose frames have names already: those of a Python program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::trace {

struct NamedFrame {
  std::string name{};
  std::string file{};
  std::int64_t line = 0;

  friend bool operator==(const NamedFrame&, const NamedFrame&) = default;
};

class StackSource {
 public:
  static constexpr std::uint32_t kNone = 0;

  StackSource() = default;
  StackSource(const StackSource&) = delete;
  StackSource& operator=(const StackSource&) = delete;
  virtual ~StackSource() = default;

  // The number of the stack of what this thread asks for, or kNone. Called inside the allocator, by
  // the thread that the event is about: whoever walks stacks has done so before.
  [[nodiscard]] virtual std::uint32_t current() const noexcept = 0;
  // The frames of a number that current() gave, innermost first. Called by a recorder's own thread.
  [[nodiscard]] virtual std::vector<NamedFrame> frames_of(std::uint32_t stack) const = 0;
};

}  // namespace headroom::trace
