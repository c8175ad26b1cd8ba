// AsyncGates: when the work of an asynchronous test device may run. Each piece of work passes a
// gate of its stream first.
//
// Late: a gate opens when somebody waits for what is behind it, and then only what that needs: the
// work before it on its stream, and before the events that its stream waits for. So a wait that is
// missing shows as wrong data every time, whatever the machine does meanwhile. A program that waits
// by other means still goes on: a gate gives in after a while.
//
// Random: streams run by themselves, each piece of work after a pause that is drawn from the seed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

#include "headroom/device/types.h"

namespace headroom::testing {

enum class AsyncPace : std::uint8_t { kLate, kRandom };

class AsyncGates {
 public:
  // The place of a piece of work in its stream.
  struct Ticket {
    device::StreamId stream{};
    std::uint64_t number = 0;
    std::uint32_t pause_us = 0;
  };

  AsyncGates(AsyncPace pace, unsigned seed, std::chrono::milliseconds patience)
      : pace_(pace), patience_(patience), random_(seed) {}

  [[nodiscard]] Ticket add(device::StreamId stream);
  // On the stream's thread, before the work.
  void pass(const Ticket& ticket);

  void recorded(device::EventId event, device::StreamId stream);
  void released(device::EventId event);
  // `stream` waits for the event from now on.
  void waits(device::StreamId stream, device::EventId event);

  // Somebody waits for what is queued there now.
  void open(device::StreamId stream);
  void open(device::EventId event);
  // Every stream that there has been work on.
  std::vector<device::StreamId> open_all();

 private:
  struct Point {
    device::StreamId stream{};
    std::uint64_t number = 0;
  };
  struct Wait {
    std::uint64_t number = 0;  // work of the stream after this waits
    Point point{};
  };
  struct Stream {
    std::uint64_t queued = 0;
    std::uint64_t open = 0;
    std::vector<Wait> waits{};
  };
  void open_locked(Point to);

  const AsyncPace pace_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // guards all below
  std::condition_variable opened_;
  std::mt19937 random_;
  std::unordered_map<device::StreamId, Stream> streams_{};
  std::unordered_map<device::EventId, Point> events_{};
};

}  // namespace headroom::testing
