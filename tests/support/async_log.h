// AsyncLog: what was queued on an AsyncDevice for a while, to be queued again as a captured graph
// is replayed: the same launches, with the addresses and the scalars that they had.
//
//   AsyncLog log;
//   device.set_log(&log);
//   runner.step();
//   device.set_log(nullptr);
//   log.uploads().at(0) = next_examples;   // what the replay copies to the device
//   log.replay();
//
// Copies from the host read the log's own bytes, which must stay until the device has read them.
// Blocks come and go in a replay as they did, so that what was freed is poison again. The log is of
// one stream; it must not outlive the device, nor what was in use when it was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "headroom/device/device.h"

namespace headroom::testing {

class AsyncLog {
 public:
  using Work = std::function<device::DeviceResult<void>()>;
  using Bytes = std::vector<std::byte>;

  // In the order of their copies.
  [[nodiscard]] std::deque<Bytes>& uploads() noexcept { return uploads_; }
  [[nodiscard]] std::uint64_t launches() const noexcept { return launches_; }
  // Queues everything again. Throws Error where the log has something that cannot be replayed, and
  // where the device refuses.
  void replay() const;

  // --- For the device -------------------------------------------------------------------------

  void add(device::StreamId stream, Work work);
  void add_launch(device::StreamId stream, Work work);
  // Keeps the bytes; `copy` copies them to the device.
  void add_upload(device::StreamId stream,
                  const void* from,
                  std::uint64_t size_bytes,
                  std::function<device::DeviceResult<void>(const Bytes& bytes)> copy);
  // A replay cannot do this.
  void add_unrepeatable(const char* what) { unrepeatable_ = what; }

 private:
  std::vector<Work> works_{};
  std::deque<Bytes> uploads_{};
  std::uint64_t launches_ = 0;
  device::StreamId stream_{};
  const char* unrepeatable_ = nullptr;
};

}  // namespace headroom::testing
