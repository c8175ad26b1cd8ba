// NamedStacks: the stacks of the program by number, and which one this thread allocates for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/trace/record/stack_source.h"

#include "bindings/pytorch/bridge/process.h"
#include "bindings/pytorch/bridge/recordings.h"
#include "bindings/pytorch/bridge/seen_stacks.h"

namespace headroom::bridge {

// For the life of the process, as numbers stay valid that long.
class NamedStacks final : public trace::StackSource {
 public:
  // Beyond these, nothing new is kept: some 100 MB of a program that makes its code as it runs.
  static constexpr std::uint32_t kMostLines = 1U << 18U;
  static constexpr std::uint32_t kMostStacks = 1U << 18U;

  [[nodiscard]] static NamedStacks& instance();

  // Stacks are walked in this process from now on, and not in those that are forked from it.
  void walk_here() noexcept;

  std::uint32_t intern(const SourceLine& line);
  std::uint32_t intern(std::span<const std::uint32_t> lines);

  [[nodiscard]] std::uint32_t current() const noexcept override;
  [[nodiscard]] std::vector<trace::NamedFrame> frames_of(std::uint32_t stack) const override;

 private:
  NamedStacks() = default;
  using Key = std::tuple<std::string, std::string, std::int64_t>;

  mutable ForkSafeMutex mutex_{ForkSafeMutex::Rank::kTable};
  std::map<Key, std::uint32_t> ids_{};
  std::vector<const Key*> lines_{nullptr};
  SeenStacks stacks_{};
  std::vector<std::vector<std::uint32_t>> stack_lines_{{}};
};

// Whether a recording of the device, by its number, keeps the stacks of allocations.
inline constinit std::array<std::atomic<bool>, Process::kMostDevices> devices_that_want_stacks{};
[[nodiscard]] inline std::atomic<bool>& wants_stacks(int device) noexcept {
  return devices_that_want_stacks[static_cast<std::size_t>(device)];
}

// While it lives, this thread's events have the stack that it found when it was made.
class RecordedStack {
 public:
  explicit RecordedStack(const std::atomic<bool>& is_wanted) noexcept {
    if (is_wanted.load(std::memory_order_relaxed)) [[unlikely]] {
      begin();
    }
  }
  ~RecordedStack() {
    if (has_begun_) [[unlikely]] {
      end();
    }
  }
  RecordedStack(const RecordedStack&) = delete;
  RecordedStack& operator=(const RecordedStack&) = delete;

 private:
  void begin() noexcept;
  void end() const noexcept;

  bool has_begun_ = false;
  std::uint32_t outer_ = 0;
};

}  // namespace headroom::bridge
