// StreamClocks: what each stream of a paged allocator has finished.
//
// Every free gets a number from one clock. A mark is an event that was recorded on a stream,
// together with the clock of that moment: once the event has passed, everything that had been freed
// on the stream by then is out of use. Nothing here waits but wait().
//
//   hole.freed_at = clocks.tick(clock);        // a block of the stream becomes free
//   clocks.mark_moments();                     // later
//   if (hole.freed_at <= clock.done) ...       // no work that is queued still uses it
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

struct StreamClock {
  StreamId stream = StreamId::kDefault;
  std::uint64_t done = 0;    // every use of what was freed by then has ended
  std::uint64_t freed = 0;   // the last free, or the last that pages came
  std::uint64_t marked = 0;  // the newest mark
  bool is_behind = false;    // done < freed
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

  // The number of the free that happens now on a stream.
  [[nodiscard]] std::uint64_t tick(StreamClock& clock) noexcept {
    ++now_;
    return stamp(clock);
  }
  // The number of the last free anywhere: for memory that comes to a stream.
  [[nodiscard]] std::uint64_t stamp(StreamClock& clock) noexcept {
    note_free(clock, now_);
    return now_;
  }
  // What was freed then is memory of this stream now.
  void note_free(StreamClock& clock, std::uint64_t at) noexcept {
    clock.freed = std::max(clock.freed, at);
    if (clock.is_behind || clock.freed <= clock.done) [[likely]] {
      return;
    }
    clock.is_behind = true;
    behind_.push_back(&clock);  // there is room: see clock_of
  }
  [[nodiscard]] std::uint64_t now() const noexcept { return now_; }

  // Made when a stream is first seen; keeps its address.
  [[nodiscard]] StreamClock& clock_of(StreamId stream);
  [[nodiscard]] std::size_t size() const noexcept { return clocks_.size(); }

  // Asks which marks have passed, and sets one for each stream that has frees without one. Takes no
  // time for streams that have passed all their frees, however many these are.
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
  void forget_passed() noexcept;

  device::Device& device_;
  std::deque<StreamClock> clocks_{};
  std::vector<StreamClock*> behind_{};
  std::uint64_t now_ = 0;
  bool is_capturing_ = false;
};

}  // namespace headroom::memory::internal
