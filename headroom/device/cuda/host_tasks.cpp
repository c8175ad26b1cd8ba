#include "headroom/device/cuda/internal/host_tasks.h"

#include <atomic>
#include <thread>
#include <utility>

namespace headroom::device::internal {
namespace {

thread_local bool runs_host_tasks = false;

}  // namespace

bool is_in_host_task() noexcept { return runs_host_tasks; }

// Detached: at the end of the process it waits for a task that does not come, and owns all it uses.
std::shared_ptr<CudaTaskRunner> CudaTaskRunner::start(CudaFlag flag) {
  std::shared_ptr<CudaTaskRunner> runner(new CudaTaskRunner(flag));
  std::thread([runner] { runner->run(); }).detach();
  return runner;
}

DeviceResult<void> CudaTaskRunner::enqueue(CudaContext& context, CUstream stream, HostTask task) {
  const std::scoped_lock order(enqueue_mutex_);
  const std::uint32_t number = last_number_ + 1;
  auto item = std::make_unique<Item>();
  item->runner = shared_from_this();
  item->task = task;
  item->number = number;
  {
    const std::scoped_lock lock(mutex_);
    ++outstanding_;
  }
  Item* const queued = item.get();
  const CudaDriver& driver = context.driver();
  if (auto rung = context.call(driver.cuLaunchHostFunc,
                               stream,
                               static_cast<CUhostFn>(&ring),
                               static_cast<void*>(queued));
      !rung) {
    const std::scoped_lock lock(mutex_);
    --outstanding_;
    changed_.notify_all();
    return rung;
  }
  (void)item.release();  // the runner's from here on
  last_number_ = number;
  // The comparison is cyclic, so the numbers may wrap around.
  auto held = context.call(
      driver.cuStreamWaitValue32, stream, flag_.device, number, unsigned{CU_STREAM_WAIT_VALUE_GEQ});
  // Until it has a verdict the runner leaves it alone: a call that fails runs nothing.
  const std::scoped_lock lock(mutex_);
  queued->verdict = held ? Verdict::kRun : Verdict::kSkip;
  changed_.notify_all();
  return held;
}

// On the driver's thread: no call of the driver, no waiting, no allocation.
void CudaTaskRunner::ring(void* data) noexcept {
  auto* item = static_cast<Item*>(data);
  const std::shared_ptr<CudaTaskRunner> runner = item->runner;
  const std::scoped_lock lock(runner->mutex_);
  (runner->last_ == nullptr ? runner->first_ : runner->last_->next) = item;
  runner->last_ = item;
  runner->changed_.notify_all();
}

void CudaTaskRunner::run() noexcept {
  runs_host_tasks = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] {
      return (first_ != nullptr && first_->verdict != Verdict::kUndecided) ||
             (is_stopping_ && outstanding_ == 0);
    });
    if (first_ == nullptr) return;
    run_first(lock);
  }
}

void CudaTaskRunner::run_first(std::unique_lock<std::mutex>& lock) noexcept {
  const std::unique_ptr<Item> item(first_);
  first_ = item->next;
  if (first_ == nullptr) last_ = nullptr;
  lock.unlock();
  if (item->verdict == Verdict::kRun) item->task.run(item->task.data);
  std::atomic_ref<std::uint32_t>(*flag_.host).store(item->number, std::memory_order_release);
  lock.lock();
  --outstanding_;
  changed_.notify_all();
}

void CudaTaskRunner::stop() noexcept {
  const std::scoped_lock lock(mutex_);
  is_stopping_ = true;
  changed_.notify_all();
}

void CudaTaskRunner::wait_until_idle() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return outstanding_ == 0; });
}

}  // namespace headroom::device::internal
