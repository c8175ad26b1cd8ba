// Shared by all cpu devices of a process: the counts the kernel bounds, the files a fork must not
// inherit, the threads an exit must not surprise.
//
// Made on first use and never destroyed, so that devices work while statics are destroyed. The
// child of a fork gets a new one: there it has no files, no threads and no lock that a lost thread
// might hold.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace headroom::device::internal {

class CpuStream;

struct CpuProcess {
  // Guards the members below it, and is held by a fork, so that a child never sees a mapping that
  // is made but not yet marked as not inherited. Nothing waits while holding it.
  std::mutex mutex;
  std::vector<int> files;           // descriptors of memory files
  std::vector<CpuStream*> streams;  // whose threads run
  int busy_threads = 0;             // stream threads that have neither ended nor parked
  bool parks_at_exit = false;       // the exit hook is installed
  std::condition_variable changed;  // busy_threads went down

  std::atomic<bool> is_shutting_down{false};
  std::atomic<std::uint64_t> mappings{0};  // handles mapped
  std::atomic<std::uint64_t> areas{0};     // segments and reservations
  // Physical memory given out, touched or not.
  std::atomic<std::uint64_t> segment_bytes{0};
  std::atomic<std::uint64_t> page_bytes{0};
  // Until this moment (steady clock), and while segment_bytes + page_bytes stay at or below this
  // sum, the machine is known to have room.
  std::atomic<std::int64_t> room_until_ns{0};
  std::atomic<std::uint64_t> room_until_bytes{0};

  CpuProcess* parent = nullptr;  // the one of before the fork; kept so that nothing is lost
};

[[nodiscard]] CpuProcess& cpu_process();

// Takes `amount` more of a bounded count, or nothing.
[[nodiscard]] bool try_take(std::atomic<std::uint64_t>& count,
                            std::uint64_t amount,
                            std::uint64_t bound) noexcept;

}  // namespace headroom::device::internal
