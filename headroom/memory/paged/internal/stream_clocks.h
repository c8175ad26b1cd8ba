// StreamClocks: what each stream of a paged allocator has finished.
//
// Every free gets a number from one clock. A mark is an event that was recorded on a stream,
// together with the clock of that moment: once the event has passed, everything that had been freed
// on the stream by then is out of use. Nothing here waits but wait().
//
//   hole.freed_at = clocks.tick();             // a block becomes free
//   clocks.mark_moments();                     // later
//   if (hole.freed_at <= clock.done) ...       // no work that is queued still uses it
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "headroom/device/device.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct StreamClock {
  StreamId stream = StreamId::kDefault;
  std::uint64_t done = 0;    // every use of what was freed by then has ended
  std::uint64_t marked = 0;  // the newest mark
  struct Mark {
    std::uint64_t at = 0;
    device::EventId event = device::EventId::kNone;
  };
  std::deque<Mark> marks{};
};

// Every function requires the allocator's lock.
class StreamClocks {
 public:
  explicit StreamClocks(device::Device& device) noexcept : device_(device) {}
  StreamClocks(const StreamClocks&) = delete;
  StreamClocks& operator=(const StreamClocks&) = delete;

  // The number of the free that happens now.
  [[nodiscard]] std::uint64_t tick() noexcept { return ++now_; }
  [[nodiscard]] std::uint64_t now() const noexcept { return now_; }

  // Made when a stream is first seen; keeps its address.
  [[nodiscard]] StreamClock& clock_of(StreamId stream);
  [[nodiscard]] std::size_t size() const noexcept { return clocks_.size(); }

  // Asks which marks have passed, and sets one for each stream that has frees without one.
  void mark_moments();
  // Waits until the streams have passed everything that was freed. False when one would not.
  bool wait();
  // Makes what is queued from now on for `own` run behind what is queued on `donor`.
  device::DeviceResult<void> order(const StreamClock& own, const StreamClock& donor) noexcept;
  template <class Function>
  void for_each(Function&& function) {
    for (StreamClock& clock : clocks_) function(clock);
  }
  // The device gets its events back.
  void release_marks() noexcept;

  // During a capture nothing is asked, waited for, moved or unmapped.
  void set_capturing(bool is_capturing) noexcept { is_capturing_ = is_capturing; }
  [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }

 private:
  void poll(StreamClock& clock) noexcept;
  void mark(StreamClock& clock);
  void release_marks(StreamClock& clock) noexcept;

  device::Device& device_;
  std::deque<StreamClock> clocks_{};
  std::uint64_t now_ = 0;
  bool is_capturing_ = false;
};

}  // namespace headroom::memory::internal
