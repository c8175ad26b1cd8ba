// RingRecorder: the last events of an allocator, in memory.
//
//   RingRecorder ring({.capacity_events = 100'000});
//   allocator.add_sink(ring);
//   ...
//   Trace trace = ring.snapshot({.device = 0});      // while it records, too
//   allocator.remove_sink(ring);                     // before the ring goes
//
// An event takes 64 bytes. When the ring is full the oldest make room, and are counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/memory/event.h"
#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/record/stack_options.h"
#include "headroom/trace/trace.h"

namespace headroom {
class TickClock;
}

namespace headroom::trace {

namespace internal {
class LazyMemory;
class StackInterner;
class TraceBuilder;
}  // namespace internal

struct RingOptions {
  std::uint64_t capacity_events = std::uint64_t{1} << 20U;  // rounded up to a power of two
  std::uint64_t capacity_bytes = 0;                         // if set, instead
  StackOptions stacks{};
};

class RingRecorder final : public memory::EventSink {
 public:
  // Throws InvalidArgument for a capacity of 0, or of more than a TiB.
  explicit RingRecorder(RingOptions options = {});
  ~RingRecorder() override;

  // Of one allocator: events come one at a time, in its order.
  void record(const memory::Event& event) noexcept override;

  // The contents of the ring, as the events of one device. Throws Forked in the child of a fork.
  [[nodiscard]] Trace snapshot(const DeviceKey& key = {}) const;
  // Adds them to a trace that is being put together, those before `until_sequence` only.
  void append_to(Trace& trace,
                 internal::TraceBuilder& builder,
                 const DeviceKey& key,
                 std::optional<std::uint64_t> until_sequence = std::nullopt) const;

  [[nodiscard]] std::uint64_t capacity() const noexcept { return mask_ + 1; }
  [[nodiscard]] std::uint64_t recorded_events() const noexcept;
  // That had to make room.
  [[nodiscard]] std::uint64_t dropped_events() const noexcept;

 private:
  struct Copy;
  void record_slowly(const memory::Event& event, const void* frame) noexcept;
  void keep(const memory::Event& event, std::uint64_t ticks, std::uint32_t stack) noexcept;
  [[nodiscard]] std::uint32_t stack_id(const void* frame) noexcept;
  [[nodiscard]] Copy copy(std::optional<std::uint64_t> until_sequence) const;

  RingOptions options_;
  std::uint64_t mask_;
  bool is_quick_;  // neither stacks nor the system's clock
  std::unique_ptr<internal::LazyMemory> memory_;
  std::uint64_t* words_;                   // in memory_, eight for each event
  std::atomic<std::uint64_t> started_{0};  // events so far, with the one on its way
  std::atomic<std::uint64_t> next_{0};     // events so far
  std::atomic<std::uint64_t> first_sequence_{0};
  // Written by record() under the lock, so that a snapshot may read them under it; record() itself
  // reads without.
  std::unique_ptr<internal::StackInterner> stacks_;
  mutable std::mutex stacks_mutex_;
  mutable std::mutex clock_mutex_;
  std::unique_ptr<TickClock> clock_;
  ForkMark made_{};
};

}  // namespace headroom::trace
