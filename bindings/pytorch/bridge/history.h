// DeviceHistory: what PyTorch's memory history keeps of one device: a ring of the last events, and
// whom PyTorch has tell of each.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "headroom/base/tick_clock.h"
#include "headroom/memory/allocator.h"

#include "bindings/pytorch/bridge/values.h"

namespace headroom::bridge {

// Entries in the order in which they came; the oldest make room.
class TraceRing {
 public:
  void set_capacity(std::uint64_t entries);
  void add(TraceEntry entry);
  void clear() noexcept;
  [[nodiscard]] std::vector<TraceEntry> all() const;

 private:
  static constexpr std::uint64_t kChunk = 1024;
  using Chunk = std::unique_ptr<TraceEntry[]>;  // NOLINT(modernize-avoid-c-arrays)

  [[nodiscard]] TraceEntry& at(std::uint64_t index) const noexcept {
    return chunks_[index / kChunk][index % kChunk];
  }

  std::vector<Chunk> chunks_;
  std::uint64_t capacity_ = 1;
  std::uint64_t size_ = 0;
  std::uint64_t next_ = 0;  // where the next entry goes, once the ring is full
};

using Tracker = std::function<void(const TraceEntry&)>;

class DeviceHistory final : public memory::EventSink {
 public:
  DeviceHistory(memory::Allocator& allocator, int index) noexcept
      : allocator_(allocator), index_(index) {}

  // One call at a time of these two.
  void set(const HistorySettings& settings);
  void add_tracker(Tracker tracker);
  [[nodiscard]] std::vector<TraceEntry> trace() const;
  void record_snapshot(std::uint64_t active_bytes);

  // Frees are to have the stack of the free.
  [[nodiscard]] bool wants_free_contexts() const noexcept {
    return wants_free_contexts_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] Context make_context() const;

  void record(const memory::Event& event) noexcept override;

 private:
  void tell(TraceEntry entry) const;

  memory::Allocator& allocator_;
  const int index_;
  std::atomic<bool> wants_free_contexts_{false};
  mutable std::mutex mutex_;
  HistorySettings settings_{};
  memory::Actions skipped_{};
  TraceRing ring_{};
  std::vector<Tracker> trackers_{};
  mutable TickClock clock_{};  // what asks the system costs a microsecond on some machines
};

// The context of the free that this thread has begun, for as long as it lives.
class FreeContext {
 public:
  explicit FreeContext(Context context) noexcept;
  ~FreeContext();
  FreeContext(const FreeContext&) = delete;
  FreeContext& operator=(const FreeContext&) = delete;

 private:
  Context context_;
};

}  // namespace headroom::bridge
