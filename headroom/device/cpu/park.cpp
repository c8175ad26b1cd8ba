#include "headroom/device/cpu/internal/park.h"

#include <chrono>
#include <cstdlib>
#include <unistd.h>

#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/cpu/internal/stream.h"

namespace headroom::device::internal {
namespace {

// A host task that hangs must not keep the program from ending.
constexpr std::chrono::seconds kPatience{5};

void park_threads() noexcept {
  CpuProcess& process = cpu_process();
  process.is_shutting_down.store(true, std::memory_order_release);
  std::unique_lock lock(process.mutex);
  for (CpuStream* stream : process.streams) stream->wake_all();
  // exit() may have been called by a task; that thread is the one that runs us.
  const int left = CpuStream::is_stream_thread() ? 1 : 0;
  process.changed.wait_for(lock, kPatience, [&] { return process.busy_threads <= left; });
}

}  // namespace

void thread_started(CpuStream& stream) {
  CpuProcess& process = cpu_process();
  const std::scoped_lock lock(process.mutex);
  if (!process.parks_at_exit) process.parks_at_exit = std::atexit(park_threads) == 0;
  process.streams.push_back(&stream);
  ++process.busy_threads;
}

void thread_ended(CpuStream& stream) noexcept {
  CpuProcess& process = cpu_process();
  {
    const std::scoped_lock lock(process.mutex);
    std::erase(process.streams, &stream);
    --process.busy_threads;
  }
  process.changed.notify_all();
}

void park_forever() noexcept {
  CpuProcess& process = cpu_process();
  {
    const std::scoped_lock lock(process.mutex);
    --process.busy_threads;
  }
  process.changed.notify_all();
  for (;;) pause();
}

}  // namespace headroom::device::internal
