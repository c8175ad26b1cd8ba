#include "headroom/memory/paged/internal/stream_clocks.h"

#include "headroom/memory/internal/shortage.h"

namespace headroom::memory::internal {

using device::DeviceResult;
using device::StatusCode;

namespace {

// A stream that has been released has no work left that anybody could wait for.
bool is_over(const device::DeviceStatus& status) noexcept {
  return is_gone(status) || status == StatusCode::kUnknownHandle;
}

}  // namespace

StreamClock& StreamClocks::clock_of(StreamId stream) {
  for (StreamClock& clock : clocks_) {
    if (clock.stream == stream) return clock;
  }
  behind_.reserve(clocks_.size() + 1);
  StreamClock& clock = clocks_.emplace_back();
  clock.stream = stream;
  return clock;
}

void StreamClocks::poll(StreamClock& clock) noexcept {
  while (!clock.marks.empty()) {
    const StreamClock::Mark& mark = clock.marks.front();
    const auto ready = device_.query_event(mark.event);
    if (!(ready ? *ready : is_gone(ready.error()))) return;
    (void)device_.release_event(mark.event);
    clock.done = mark.at;
    clock.marks.pop_front();
  }
}

void StreamClocks::mark(StreamClock& clock) {
  constexpr std::size_t kMostMarks = 8;
  if (clock.marked >= clock.freed || clock.marks.size() >= kMostMarks) return;
  clock.marks.push_back({.at = now_});
  const auto event = device_.record_event(clock.stream);
  if (event) {
    clock.marks.back().event = *event;
    clock.marked = now_;
    return;
  }
  clock.marks.pop_back();
  if (is_over(event.error())) {
    clock.done = now_;
    clock.marked = now_;
  }
}

void StreamClocks::mark_moments() {
  if (is_capturing_) return;
  for (StreamClock* clock : behind_) {
    poll(*clock);
    mark(*clock);
    poll(*clock);
  }
  forget_passed();
}

void StreamClocks::forget_passed() noexcept {
  std::erase_if(behind_, [](StreamClock* clock) {
    clock->is_behind = clock->done < clock->freed;
    return !clock->is_behind;
  });
}

bool StreamClocks::wait() {
  if (is_capturing_) return false;
  bool is_done = true;
  for (StreamClock& clock : clocks_) {
    const auto event = device_.record_event(clock.stream);
    bool has_passed = !event && is_over(event.error());
    if (event) {
      const auto waited = device_.synchronize_event(*event);
      has_passed = waited || is_gone(waited.error());
      (void)device_.release_event(*event);
    }
    is_done = is_done && has_passed;
    if (!has_passed) continue;
    release_marks(clock);
    clock.done = now_;
    clock.marked = now_;
  }
  forget_passed();
  return is_done;
}

DeviceResult<void> StreamClocks::order(const StreamClock& own, const StreamClock& donor) noexcept {
  const auto event = device_.record_event(donor.stream);
  if (!event) {
    if (is_over(event.error())) return {};
    return Unexpected(event.error());
  }
  const auto waits = device_.wait_event(own.stream, *event);
  (void)device_.release_event(*event);
  return waits;
}

void StreamClocks::release_marks(StreamClock& clock) noexcept {
  for (const StreamClock::Mark& mark : clock.marks) (void)device_.release_event(mark.event);
  clock.marks.clear();
}

void StreamClocks::release_marks() noexcept {
  for (StreamClock& clock : clocks_) release_marks(clock);
}

}  // namespace headroom::memory::internal
