#include "tests/support/async_gates.h"

#include <algorithm>
#include <thread>

namespace headroom::testing {

using device::EventId;
using device::StreamId;

AsyncGates::Ticket AsyncGates::add(StreamId stream) {
  const std::scoped_lock lock(mutex_);
  Ticket out{.stream = stream, .number = ++streams_[stream].queued};
  // Half of the work follows at once, and some so late that whoever does not wait is past it.
  if (const auto drawn = static_cast<std::uint32_t>(random_());
      pace_ == AsyncPace::kRandom && drawn % 2 == 0) {
    out.pause_us = drawn % 16 == 0 ? 500 : drawn / 2 % 50;
  }
  return out;
}

void AsyncGates::pass(const Ticket& ticket) {
  if (pace_ == AsyncPace::kRandom) {
    if (ticket.pause_us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(ticket.pause_us));
    }
    return;
  }
  std::unique_lock lock(mutex_);
  const Stream& stream = streams_[ticket.stream];
  const bool is_open =
      opened_.wait_for(lock, patience_, [&] { return stream.open >= ticket.number; });
  if (!is_open) open_locked({.stream = ticket.stream, .number = ticket.number});
}

void AsyncGates::recorded(EventId event, StreamId stream) {
  const std::scoped_lock lock(mutex_);
  events_[event] = {.stream = stream, .number = streams_[stream].queued};
}

void AsyncGates::released(EventId event) {
  const std::scoped_lock lock(mutex_);
  events_.erase(event);
}

void AsyncGates::waits(StreamId stream, EventId event) {
  const std::scoped_lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return;
  Stream& own = streams_[stream];
  own.waits.push_back({.number = own.queued, .point = found->second});
}

// Requires mutex_. What is open already needs nothing more.
void AsyncGates::open_locked(Point to) {
  Stream& stream = streams_[to.stream];
  stream.open = std::max(stream.open, to.number);
  std::vector<Point> needed;
  std::erase_if(stream.waits, [&](const Wait& wait) {
    if (wait.number > to.number) return false;
    needed.push_back(wait.point);
    return true;
  });
  for (const Point& point : needed) open_locked(point);
  opened_.notify_all();
}

void AsyncGates::open(StreamId stream) {
  const std::scoped_lock lock(mutex_);
  open_locked({.stream = stream, .number = streams_[stream].queued});
}

void AsyncGates::open(EventId event) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end()) open_locked(found->second);
}

std::vector<StreamId> AsyncGates::open_all() {
  const std::scoped_lock lock(mutex_);
  std::vector<StreamId> out;
  for (auto& [id, stream] : streams_) {
    stream.open = stream.queued;
    stream.waits.clear();
    out.push_back(id);
  }
  opened_.notify_all();
  return out;
}

}  // namespace headroom::testing
