// StreamGate: holds a stream until a test opens it, so that "not yet" needs no stop-watch.
//
//   StreamGate gate(device, stream);
//   device.fill(...);                    // queued behind the gate
//   EXPECT_FALSE(device.query_event(event).value());
//   gate.open();
//
// For devices whose streams have threads of their own: inline work would wait for itself.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include <gtest/gtest.h>

#include "headroom/device/device.h"

namespace headroom::testing {

class StreamGate {
 public:
  StreamGate(device::Device& device, device::StreamId stream)
      : shared_(std::make_shared<Shared>()) {
    // The task owns a share, because the gate may go before the stream has come to it.
    auto* share = new std::shared_ptr<Shared>(shared_);
    const auto queued = device.enqueue_host(stream, {.run = &wait_here, .data = share});
    EXPECT_TRUE(queued.has_value()) << "the gate is not in the stream";
    if (!queued) delete share;
  }
  ~StreamGate() { open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  void open() {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_open = true;
    shared_->changed.notify_all();
  }
  // Waits until the stream has come to the gate: all before it has run.
  void wait_until_reached() {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] { return shared_->is_reached; });
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;
    bool is_reached = false;
  };

  static void wait_here(void* data) noexcept {
    const std::unique_ptr<std::shared_ptr<Shared>> share(
        static_cast<std::shared_ptr<Shared>*>(data));
    Shared& shared = **share;
    std::unique_lock lock(shared.mutex);
    shared.is_reached = true;
    shared.changed.notify_all();
    shared.changed.wait(lock, [&] { return shared.is_open; });
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace headroom::testing
