// CpuStream: a queue of tasks and the thread that runs them in order.
//
// A position is how many tasks were queued before a moment; the stream has passed it when that
// many have run. An event is a stream and a position, nothing more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>

#include "headroom/device/device.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

class CpuStream;

struct CopyTask {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint64_t size_bytes = 0;
};
struct FillTask {
  void* to = nullptr;
  std::uint64_t size_bytes = 0;
  std::uint8_t value = 0;
};
struct WaitTask {
  std::shared_ptr<CpuStream> stream;
  std::uint64_t position = 0;
};
// For AddressSanitizer: a block was allocated or freed here.
struct PoisonTask {
  void* from = nullptr;
  std::uint64_t size_bytes = 0;
  bool is_poison = false;
};
// Holds something until the stream gets here.
struct KeepTask {
  std::shared_ptr<void> kept;
};
// Writes down when the stream gets here.
struct TimeTask {
  std::shared_ptr<std::atomic<std::int64_t>> time_ns;
};
using Task = std::variant<CopyTask, FillTask, HostTask, WaitTask, PoisonTask, KeepTask, TimeTask>;

// Runs it on the calling thread; only a wait can fail.
[[nodiscard]] DeviceResult<void> run_task(const Task& task);

class CpuStream {
 public:
  // Throws std::system_error when there is no thread to be had.
  CpuStream(int device_index, StreamId id);
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;
  // Requires has_ended() and join(), or that the thread is parked for good and nobody destroys it.
  ~CpuStream() = default;

  [[nodiscard]] StreamId id() const noexcept { return id_; }

  // kUnknownHandle after close(), kShutDown when the process is ending.
  [[nodiscard]] DeviceResult<void> enqueue(Task task);
  // Queues it even after close(), if there is work it must stay behind. Else drops it.
  void keep_behind(const std::shared_ptr<void>& kept);

  // Takes no more tasks; the thread ends when those it has are done.
  void close() noexcept;
  [[nodiscard]] bool has_ended() const noexcept;
  void join();

  // The position now. kShutDown when it will never be passed.
  [[nodiscard]] DeviceResult<std::uint64_t> position() noexcept;
  [[nodiscard]] bool has_passed(std::uint64_t position) const noexcept {
    return passed_.load(std::memory_order_acquire) >= position;
  }
  // Waits. kShutDown when the process ends first, kInvalidArgument from a task of this stream.
  [[nodiscard]] DeviceResult<void> wait_until_passed(std::uint64_t position) noexcept;

  // For the exit hook: the thread and everybody who waits look again.
  void wake_all() noexcept;
  // Whether the calling thread is a stream's.
  [[nodiscard]] static bool is_stream_thread() noexcept;

 private:
  void run() noexcept;
  void start_thread();

  const int device_index_;
  const StreamId id_;
  mutable std::mutex mutex_;
  std::condition_variable work_;          // for the thread: something was queued, or closed
  std::condition_variable progress_;      // for those who wait: passed_ went up
  std::deque<Task> queue_;                // requires mutex_
  std::uint64_t queued_ = 0;              // requires mutex_; tasks ever queued
  bool is_closed_ = false;                // requires mutex_
  bool has_ended_ = false;                // requires mutex_
  std::atomic<std::uint64_t> passed_{0};  // tasks that have run; written under mutex_
  std::thread thread_;
};

}  // namespace headroom::device::internal
