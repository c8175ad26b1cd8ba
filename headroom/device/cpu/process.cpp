#include "headroom/device/cpu/internal/process.h"

#include <new>
#include <unistd.h>

#include "headroom/base/check.h"
#include "headroom/base/fork.h"

namespace headroom::device::internal {
namespace {

constinit std::atomic<CpuProcess*> current{nullptr};

void before_fork() noexcept { current.load(std::memory_order_acquire)->mutex.lock(); }

void after_fork_in_parent() noexcept { current.load(std::memory_order_acquire)->mutex.unlock(); }

// The regions are not in the child (MADV_DONTFORK), but a descriptor would keep the parent's
// memory alive for as long as the child lives.
void after_fork_in_child() noexcept {
  CpuProcess* parent = current.load(std::memory_order_acquire);
  for (const int file : parent->files) close(file);
  auto* own = new (std::nothrow) CpuProcess;
  HEADROOM_CHECK(own != nullptr, "no memory for the child of a fork");
  own->parks_at_exit = parent->parks_at_exit;
  own->parent = parent;
  current.store(own, std::memory_order_release);
}

}  // namespace

CpuProcess& cpu_process() {
  [[maybe_unused]] static const bool made = [] {
    current.store(new CpuProcess, std::memory_order_release);
    add_fork_handlers({.before = before_fork,
                       .in_parent = after_fork_in_parent,
                       .in_child = after_fork_in_child});
    return true;
  }();
  return *current.load(std::memory_order_acquire);
}

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const CpuProcess& made_cpu_process = cpu_process();

bool try_take(std::atomic<std::uint64_t>& count,
              std::uint64_t amount,
              std::uint64_t bound) noexcept {
  std::uint64_t now = count.load(std::memory_order_relaxed);
  do {
    if (now > bound || amount > bound - now) return false;
  } while (!count.compare_exchange_weak(now, now + amount, std::memory_order_relaxed));
  return true;
}

}  // namespace headroom::device::internal
