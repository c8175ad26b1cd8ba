#include "headroom/device/cpu/internal/stream.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <pthread.h>
#include <utility>

#include "headroom/device/cpu/internal/bytes.h"
#include "headroom/device/cpu/internal/park.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

thread_local const CpuStream* stream_of_thread = nullptr;

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

bool is_shutting_down() noexcept {
  return cpu_process().is_shutting_down.load(std::memory_order_acquire);
}

Unexpected<DeviceStatus> shut_down() noexcept {
  return fail(StatusCode::kShutDown, "the process is ending; streams have stopped");
}

// Signals belong to the threads that the program made itself; only those that a thread raises by
// its own fault stay, so that their handlers can report.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

DeviceResult<void> run_task(const Task& task) {
  using Done = DeviceResult<void>;
  return std::visit(Overload{[](const CopyTask& copy) -> Done {
                               copy_bytes(copy.to, copy.from, copy.size_bytes);
                               return {};
                             },
                             [](const FillTask& fill) -> Done {
                               fill_bytes(fill.to, fill.value, fill.size_bytes);
                               return {};
                             },
                             [](const HostTask& host) -> Done {
                               host.run(host.data);
                               return {};
                             },
                             [](const WaitTask& wait) -> Done {
                               return wait.stream->wait_until_passed(wait.position);
                             },
                             [](const PoisonTask& block) -> Done {
                               (block.is_poison ? poison_bytes : unpoison_bytes)(block.from,
                                                                                 block.size_bytes);
                               return {};
                             },
                             [](const KeepTask&) -> Done { return {}; },
                             [](const TimeTask& mark) -> Done {
                               const auto now = std::chrono::steady_clock::now().time_since_epoch();
                               mark.time_ns->store(std::chrono::nanoseconds(now).count(),
                                                   std::memory_order_release);
                               return {};
                             }},
                    task);
}

CpuStream::CpuStream(int device_index, StreamId id) : device_index_(device_index), id_(id) {
  start_thread();
}

void CpuStream::start_thread() {
  const BlockedSignals blocked;
  thread_started(*this);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    thread_ended(*this);
    throw;
  }
}

DeviceResult<void> CpuStream::enqueue(Task task) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_closed_) {
      return fail(StatusCode::kUnknownHandle, "the stream was released", to_integer(id_));
    }
    if (is_shutting_down()) return shut_down();
    queue_.push_back(std::move(task));
    ++queued_;
  }
  work_.notify_one();
  return {};
}

void CpuStream::keep_behind(const std::shared_ptr<void>& kept) {
  const std::scoped_lock lock(mutex_);
  if (has_passed(queued_)) return;
  queue_.emplace_back(KeepTask{kept});
  ++queued_;
}

void CpuStream::close() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    is_closed_ = true;
  }
  work_.notify_one();
}

bool CpuStream::has_ended() const noexcept {
  const std::scoped_lock lock(mutex_);
  return has_ended_;
}

void CpuStream::join() { thread_.join(); }

DeviceResult<std::uint64_t> CpuStream::position() noexcept {
  const std::scoped_lock lock(mutex_);
  if (is_shutting_down() && !has_passed(queued_)) return shut_down();
  return queued_;
}

DeviceResult<void> CpuStream::wait_until_passed(std::uint64_t position) noexcept {
  if (has_passed(position)) return {};
  if (stream_of_thread == this) {
    return fail(StatusCode::kInvalidArgument, "a task waits for its own stream", to_integer(id_));
  }
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return has_passed(position) || is_shutting_down(); });
  if (!has_passed(position)) return shut_down();
  return {};
}

void CpuStream::wake_all() noexcept {
  // Whoever looked before the flag was set is waiting by the time the lock is ours.
  { const std::scoped_lock lock(mutex_); }
  work_.notify_all();
  progress_.notify_all();
}

bool CpuStream::is_stream_thread() noexcept { return stream_of_thread != nullptr; }

void CpuStream::run() noexcept {
  stream_of_thread = this;
  std::array<char, 16> name{};  // what the kernel keeps; debuggers show it
  std::snprintf(name.data(),
                name.size(),
                "cpu%d/%llu",
                device_index_,
                static_cast<unsigned long long>(to_integer(id_)));
  pthread_setname_np(pthread_self(), name.data());

  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return !queue_.empty() || is_closed_ || is_shutting_down(); });
    if (is_shutting_down()) {
      lock.unlock();
      park_forever();
    }
    if (queue_.empty()) break;
    {
      const Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      // Only an ending process breaks a wait, and what comes behind the wait must then not run.
      if (!run_task(task)) park_forever();
    }
    lock.lock();
    passed_.store(passed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    progress_.notify_all();
  }
  lock.unlock();
  thread_ended(*this);
  lock.lock();
  has_ended_ = true;
}

}  // namespace headroom::device::internal
