// CudaTaskRunner: runs the host tasks of one stream, on a thread of its own.
//
// The driver's host functions may not call the driver, and those of all streams may share one
// thread, so that a task that waits would hold up every stream. So the driver's function only
// rings:
//
//   stream   ... [ring 7][wait until flag >= 7] ...      the stream waits on the GPU
//   driver        ring: puts task 7 into the queue
//   runner        runs task 7, writes 7 into the flag    which lets the stream go on
//
// The flag is a word of pinned memory, one for each stream that ever had a task.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "headroom/device/cuda/internal/context.h"
#include "headroom/device/device.h"

namespace headroom::device::internal {

// Whether the calling thread is running a host task of some CudaDevice.
[[nodiscard]] bool is_in_host_task() noexcept;

struct CudaFlag {
  std::uint32_t* host = nullptr;  // holds 0
  CUdeviceptr device = 0;
};

class CudaTaskRunner : public std::enable_shared_from_this<CudaTaskRunner> {
 public:
  // Throws std::system_error when there can be no thread.
  [[nodiscard]] static std::shared_ptr<CudaTaskRunner> start(CudaFlag flag);
  CudaTaskRunner(const CudaTaskRunner&) = delete;
  CudaTaskRunner& operator=(const CudaTaskRunner&) = delete;
  ~CudaTaskRunner() = default;

  // Requires a scope; the stream does not capture a graph.
  DeviceResult<void> enqueue(CudaContext& context, CUstream stream, HostTask task);
  // The thread ends when all that is queued has run. Nothing is queued any more.
  void stop() noexcept;
  void wait_until_idle() noexcept;

 private:
  enum class Verdict : std::uint8_t { kUndecided, kRun, kSkip };
  struct Item {
    std::shared_ptr<CudaTaskRunner> runner;
    HostTask task;
    std::uint32_t number = 0;
    Verdict verdict = Verdict::kUndecided;  // requires the runner's mutex_
    Item* next = nullptr;
  };

  explicit CudaTaskRunner(CudaFlag flag) : flag_(flag) {}
  static void ring(void* data) noexcept;
  void run() noexcept;
  void run_first(std::unique_lock<std::mutex>& lock) noexcept;

  const CudaFlag flag_;
  std::mutex enqueue_mutex_;       // the order of the stream is the order of the numbers
  std::uint32_t last_number_ = 0;  // requires enqueue_mutex_
  std::mutex mutex_;               // guards all below; the driver's thread takes it, so never long
  std::condition_variable changed_;
  Item* first_ = nullptr;  // what the stream has come to
  Item* last_ = nullptr;
  std::uint64_t outstanding_ = 0;  // enqueued and not yet run
  bool is_stopping_ = false;
};

}  // namespace headroom::device::internal
