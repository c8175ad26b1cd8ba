// Scopes with names and peaks, and memory that goes back when a device is idle.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/peak_scope.h"

#include "bindings/pytorch/bridge/process.h"

namespace headroom::bridge {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct OpenScope {
  OpenScope(std::string_view name, memory::Allocator& allocator) : names(name), peaks(allocator) {}

  memory::AnnotationScope names;
  memory::PeakScope peaks;
};

std::vector<std::unique_ptr<OpenScope>>& scopes() {
  thread_local std::vector<std::unique_ptr<OpenScope>>
      open;  // NOLINT(readability-identifier-naming)
  return open;
}

// Looks at every device a few times in the time after which memory is idle.
class IdleTrimmer {
 public:
  static IdleTrimmer& instance() {
    static IdleTrimmer& trimmer = *new IdleTrimmer;
    return trimmer;
  }

  void set(std::int64_t after_ms, std::uint64_t keep_bytes) {
    keep_bytes_.store(keep_bytes, std::memory_order_relaxed);
    after_ms_.store(after_ms, std::memory_order_release);
    if (after_ms < 0) return;
    const std::lock_guard lock(mutex_);
    if (is_running_ && !started_in_.is_forked()) return;
    is_running_ = true;
    started_in_ = ForkMark();
    std::thread([this] { run(); }).detach();
  }

 private:
  struct Seen {
    std::int64_t growths = -1;
    Clock::time_point since{};
    std::uint64_t left_bytes = 0;  // in the cache, that the last trim could not give back
  };

  void run() {
    std::vector<Seen> seen(Process::kMostDevices);
    for (;;) {
      const std::int64_t after = after_ms_.load(std::memory_order_acquire);
      std::this_thread::sleep_for(milliseconds(std::clamp<std::int64_t>(after / 4, 5, 1000)));
      if (after < 0) continue;
      for (int i = 0; i < opened_count(); ++i) {
        if (DeviceMemory* const memory = opened_memory(i)) {
          look_at(*memory, seen[static_cast<std::size_t>(i)], milliseconds(after));
        }
      }
    }
  }

  void look_at(DeviceMemory& memory, Seen& seen, milliseconds after) const {
    const DeviceStats stats = memory.stats();
    if (stats.num_device_alloc != seen.growths) {
      seen = {.growths = stats.num_device_alloc, .since = Clock::now()};
      return;
    }
    const std::uint64_t keep = keep_bytes_.load(std::memory_order_relaxed);
    if (Clock::now() - seen.since < after) return;
    if (cached_bytes(stats) <= std::max(keep, seen.left_bytes)) return;
    (void)memory.trim(keep);
    seen.left_bytes = cached_bytes(memory.stats());
  }

  static std::uint64_t cached_bytes(const DeviceStats& stats) noexcept {
    return static_cast<std::uint64_t>(stats.reserved_bytes.all.current -
                                      stats.active_bytes.all.current);
  }

  std::mutex mutex_;
  bool is_running_ = false;
  ForkMark started_in_{};
  std::atomic<std::int64_t> after_ms_{-1};
  std::atomic<std::uint64_t> keep_bytes_{0};
};

}  // namespace

void push_scope(std::string_view name, int device) {
  memory::Allocator& allocator = Process::impl_of(device_memory(device)).allocator;
  scopes().push_back(std::make_unique<OpenScope>(name, allocator));
}

ScopePeaks pop_scope() {
  if (scopes().empty()) throw Error("there is no scope to leave in this thread");
  const OpenScope& scope = *scopes().back();
  ScopePeaks peaks{.path = memory::annotation_path(memory::current_context().annotation),
                   .peak_allocated = scope.peaks.peak_allocated(),
                   .peak_reserved = scope.peaks.peak_reserved(),
                   .peak_live = scope.peaks.peak_live()};
  scopes().pop_back();
  return peaks;
}

void set_idle_trim(std::int64_t after_ms, std::uint64_t keep_bytes) {
  IdleTrimmer::instance().set(after_ms, keep_bytes);
}

std::string version() { return HEADROOM_VERSION; }

}  // namespace headroom::bridge
