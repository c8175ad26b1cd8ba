// Blocks that were freed while other streams may still use them.
//
// For each of those streams an event is recorded behind the work queued there; when the last one
// has passed, the free is complete. Every function requires the allocator's lock.
//
// Block is a core's own: it has `stream_uses`, `event_count` and the rest that is used below.
#pragma once

#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

template <class Block>
class PendingFrees {
 public:
  explicit PendingFrees(device::Device& device) noexcept : device_(device) {}

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty() && deferred_.empty(); }

  // Makes sure that one defer() needs no memory.
  void prepare() { deferred_.reserve(deferred_.size() + 1); }
  // During a capture nothing may be recorded: the block waits for settle().
  void defer(Block& block) noexcept { deferred_.push_back(&block); }

  // Calls complete(block) for every free that is complete. Where that throws, having changed
  // nothing, the block stays for the next time.
  template <class Complete>
  void add(Block& block, Complete&& complete) {
    record_uses(block);
    if (block.event_count == 0) complete(block);
  }
  template <class Complete>
  void settle(Complete&& complete) {
    while (!deferred_.empty()) {
      add(*deferred_.back(), complete);
      deferred_.pop_back();
    }
  }
  template <class Complete>
  void process(Complete&& complete) {
    settle(complete);
    advance(complete, [this](device::EventId event) {
      const auto ready = device_.query_event(event);
      return ready ? *ready : is_gone(ready.error());
    });
  }
  // Waits as long as it takes. What the device fails to wait for stays pending.
  template <class Complete>
  void wait(Complete&& complete) {
    settle(complete);
    advance(complete, [this](device::EventId event) {
      const auto waited = device_.synchronize_event(event);
      return waited || is_gone(waited.error());
    });
  }

 private:
  struct Use {
    device::EventId event = device::EventId::kNone;  // kNone: recording failed, to be tried again
    Block* block = nullptr;
  };

  // An event behind the work queued on `stream`; `*is_done` when nothing can be queued there any
  // more. kNone when the device could not record one now.
  [[nodiscard]] device::EventId record(StreamId stream, bool* is_done) noexcept {
    const auto event = device_.record_event(stream);
    *is_done =
        !event && (is_gone(event.error()) || event.error() == device::StatusCode::kUnknownHandle);
    return event ? *event : device::EventId::kNone;
  }

  void record_uses(Block& block) {
    for (const StreamId stream : block.stream_uses.all()) {
      bool is_done = false;
      const device::EventId event = record(stream, &is_done);
      if (is_done) continue;
      try {
        waiting_[stream].push_back({.event = event, .block = &block});
        ++block.event_count;
      } catch (...) {  // No memory to remember the event: wait for it instead.
        if (event == device::EventId::kNone) continue;
        (void)device_.synchronize_event(event);
        (void)device_.release_event(event);
      }
    }
    block.stream_uses.clear();
  }

  // One stream less uses the block.
  template <class Complete>
  static void finish(Block& block, Complete&& complete) {
    if (--block.event_count > 0) return;
    try {
      complete(block);
    } catch (...) {
      ++block.event_count;
      throw;
    }
  }

  template <class Complete, class HasPassed>
  void advance(Complete&& complete, HasPassed&& has_passed) {
    for (auto queue = waiting_.begin(); queue != waiting_.end();) {
      std::deque<Use>& uses = queue->second;
      while (!uses.empty()) {
        Use& use = uses.front();
        bool is_done = false;
        if (use.event == device::EventId::kNone) use.event = record(queue->first, &is_done);
        if (!is_done && use.event != device::EventId::kNone) is_done = has_passed(use.event);
        if (!is_done) break;
        finish(*use.block, complete);
        if (use.event != device::EventId::kNone) (void)device_.release_event(use.event);
        uses.pop_front();
      }
      queue = uses.empty() ? waiting_.erase(queue) : std::next(queue);
    }
  }

  device::Device& device_;
  std::map<StreamId, std::deque<Use>> waiting_{};
  std::vector<Block*> deferred_{};  // freed with stream uses during a capture
};

}  // namespace headroom::memory::internal
