// Streams and events, as PyTorch's users know them.
//
//   Stream side("cpu");
//   Event ready = default_stream("cpu").record();
//   side.wait(ready);
//   {
//     StreamScope scope(side);       // this thread's ops on that device now go there
//     y = relu(x);
//   }
//   x.record_stream(side);           // x's memory is not reused before side has passed this point
//   side.synchronize();
//
// The cpu's default stream runs inline: an op on it is done when it returns.
#pragma once

#include <memory>

#include "headroom/device/device.h"
#include "headroom/memory/api.h"

namespace headroom {

class Stream;

// A moment of a stream.
class Event {
 public:
  [[nodiscard]] bool is_done() const;
  // Waits on the host.
  void synchronize() const;

 private:
  friend class Stream;
  struct Held;
  explicit Event(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  std::shared_ptr<Held> held_;
};

// A queue of a device; given back when the last copy of the handle has gone (what is queued still
// runs).
class Stream {
 public:
  // A new one. Throws Error when the device gives none.
  explicit Stream(WhichDevice which);
  explicit Stream(device::Device& device);

  [[nodiscard]] device::Device& device() const noexcept { return *device_; }
  [[nodiscard]] device::StreamId id() const noexcept { return id_; }

  [[nodiscard]] Event record() const;
  // Work queued from now on waits for the event, or for all that is queued on `other` now.
  void wait(const Event& event) const;
  void wait(const Stream& other) const { wait(other.record()); }
  void synchronize() const;

 private:
  friend Stream default_stream(device::Device& device);
  struct Held;
  Stream() = default;

  device::Device* device_ = nullptr;
  device::StreamId id_ = device::StreamId::kDefault;
  std::shared_ptr<Held> held_;  // null for the default stream
};

[[nodiscard]] Stream default_stream(device::Device& device);
[[nodiscard]] Stream default_stream(WhichDevice which = {});

// Makes a stream the current one of its device for this thread.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  friend device::StreamId current_stream_id(const device::Device& device) noexcept;
  friend Stream current_stream(device::Device& device);
  Stream stream_;
  const StreamScope* outer_;
};

// The stream that ops of this thread go to on a device.
[[nodiscard]] device::StreamId current_stream_id(const device::Device& device) noexcept;
[[nodiscard]] Stream current_stream(device::Device& device);

}  // namespace headroom
