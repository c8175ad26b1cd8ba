// StreamTable: which streams and events a cpu device has.
//
// Streams that were released stay known by their ids, because blocks go on naming them and events
// may still be recorded on them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "headroom/device/cpu/internal/stream.h"
#include "headroom/device/internal/departed_streams.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

class StreamTable {
 public:
  explicit StreamTable(int device_index) : device_index_(device_index) {}
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;
  // Runs what is queued, then ends the threads. Never called when they are parked.
  ~StreamTable();

  [[nodiscard]] DeviceResult<StreamId> create();
  [[nodiscard]] DeviceResult<StreamId> adopt(NativeStream native);
  [[nodiscard]] DeviceResult<void> release(StreamId stream);
  [[nodiscard]] DeviceResult<void> check_is_live(StreamId stream) const;
  [[nodiscard]] DeviceResult<void> synchronize(StreamId stream);

  [[nodiscard]] DeviceResult<NativeStream> native(StreamId stream) const;

  [[nodiscard]] DeviceResult<EventId> record(StreamId stream);
  [[nodiscard]] DeviceResult<EventId> record_timed(StreamId stream);
  [[nodiscard]] DeviceResult<double> elapsed_ms(EventId begin, EventId end);
  [[nodiscard]] DeviceResult<bool> query(EventId event);
  [[nodiscard]] DeviceResult<void> make_wait(StreamId stream, EventId event);
  [[nodiscard]] DeviceResult<void> synchronize(EventId event);
  [[nodiscard]] DeviceResult<void> release(EventId event);

  // Runs the task here if the stream is the default one, queues it otherwise.
  [[nodiscard]] DeviceResult<void> submit(StreamId stream, Task task);

  // The same, but never fails: on a stream that takes no more tasks, or without memory for one,
  // unpoisoning happens at once (a false alarm is worse than a missed one) and poisoning not.
  void submit_poison(StreamId stream, PoisonTask task) noexcept;

  // Keeps it until every stream has passed what it has queued now.
  void keep_until_passed(const std::shared_ptr<void>& kept);

  [[nodiscard]] bool has_threads() const;

 private:
  // A null stream is the default one: always passed.
  struct Event {
    std::shared_ptr<CpuStream> stream;
    std::uint64_t position = 0;
    std::shared_ptr<std::atomic<std::int64_t>> time_ns{};  // of a timed one

    [[nodiscard]] bool has_passed() const noexcept {
      return stream == nullptr || stream->has_passed(position);
    }
  };
  struct Entry {
    std::shared_ptr<CpuStream> stream;  // null once it was released and has ended
    NativeStream native = 0;
    bool is_released = false;
  };

  [[nodiscard]] DeviceResult<StreamId> create(NativeStream native);
  [[nodiscard]] DeviceResult<std::shared_ptr<CpuStream>> find_live(StreamId stream) const;
  [[nodiscard]] DeviceResult<Event> find(EventId event) const;
  void join_ended();

  const int device_index_;
  mutable std::mutex mutex_;  // guards all below; never held while waiting or running
  std::unordered_map<StreamId, Entry> entries_;
  DepartedStreams departed_;
  std::unordered_map<NativeStream, StreamId> adopted_;
  std::unordered_map<EventId, Event> events_;
  std::vector<std::shared_ptr<CpuStream>> threads_;  // streams not yet joined
};

}  // namespace headroom::device::internal
