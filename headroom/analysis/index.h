// The index of one device's recording: what was live when, how much there was, and the peaks.
//
//   const TraceIndex index(trace, trace.devices[0]);
//   const Peak& peak = index.peaks().allocated;
//   for (std::uint32_t id : index.live_at(peak.position)) use(index.lifetimes()[id]);
//
// A position is a moment between two events: 0 before the first, n behind the last of n; position
// i + 1 is behind event i. Takes 4 bytes an event and 50 a block beside the recording.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "headroom/analysis/lifetimes.h"
#include "headroom/analysis/start_state.h"
#include "headroom/analysis/types.h"
#include "headroom/memory/event.h"

namespace headroom::analysis {

// Bytes at one position, in the words of memory/types.h.
struct Totals {
  std::uint64_t live = 0;       // sizes asked for, rounded to 512, alloc to free_completed
  std::uint64_t allocated = 0;  // blocks, alloc to free_requested
  std::uint64_t active = 0;     // blocks, alloc to free_completed
  std::uint64_t reserved = 0;   // segments and mapped pages

  friend bool operator==(const Totals&, const Totals&) = default;
};

// The first moment at which a total was highest.
struct Peak {
  std::uint64_t bytes = 0;
  std::uint32_t position = 0;
};

struct Peaks {
  Peak live{};
  Peak allocated{};  // as PyTorch's max_memory_allocated
  Peak active{};
  Peak reserved{};
};

class TraceIndex {
 public:
  // Both are referred to and must outlive the index.
  TraceIndex(const Trace& trace, const DeviceTrace& device);

  [[nodiscard]] const Trace& trace() const noexcept { return trace_; }
  [[nodiscard]] const DeviceTrace& device() const noexcept { return device_; }
  [[nodiscard]] const Events& events() const noexcept { return device_.events; }
  [[nodiscard]] const StartState& start() const noexcept { return start_; }
  [[nodiscard]] const Anomalies& anomalies() const noexcept { return lifetimes_.anomalies; }

  // Whether any block was recorded with the stack that allocated it.
  [[nodiscard]] bool has_stacks() const;

  // The initial ones, then by allocation.
  [[nodiscard]] std::span<const Lifetime> lifetimes() const noexcept { return lifetimes_.all; }
  // The block that an event allocates or frees; kNoEvent for other events.
  [[nodiscard]] std::uint32_t lifetime_of(std::size_t event) const {
    return lifetimes_.of_event[event];
  }

  [[nodiscard]] std::span<const Lifetimes::OddEnd> odd_ends() const noexcept {
    return lifetimes_.odd_ends;
  }

  // The numbers of the lifetimes between allocation and end at `position`, ascending. The time is
  // that of the answer and a logarithm.
  [[nodiscard]] std::vector<std::uint32_t> live_at(std::uint32_t position) const;

  // The same without those that are freed and only waiting for another stream.
  [[nodiscard]] std::vector<std::uint32_t> allocated_at(std::uint32_t position) const;

  [[nodiscard]] const Peaks& peaks() const noexcept { return peaks_; }
  [[nodiscard]] std::uint64_t count(Action action) const {
    return counts_[static_cast<std::size_t>(action)];
  }
  [[nodiscard]] std::uint32_t end_position() const noexcept {
    return static_cast<std::uint32_t>(device_.events.size());
  }
  // Of the last event before the position, or of the first; 0 where there is none.
  [[nodiscard]] std::int64_t time_us_at(std::uint32_t position) const;
  // The last position at or before a time.
  [[nodiscard]] std::uint32_t position_at(std::int64_t time_us) const;

 private:
  void find_peaks();
  void collect(std::size_t level,
               std::size_t node,
               std::uint32_t position,
               std::size_t count,
               std::vector<std::uint32_t>& out) const;

  const Trace& trace_;
  const DeviceTrace& device_;
  StartState start_;
  Lifetimes lifetimes_;
  // Level k holds the latest end of each 16^(k+1) lifetimes that follow each other.
  std::vector<std::vector<std::uint32_t>> latest_ends_;
  std::array<std::uint64_t, memory::kActionCount> counts_{};
  Peaks peaks_{};
};

// Walks the totals from the first position to the last:
//   for (TotalsCursor at(index);; at.step()) { use(at.totals()); if (at.is_at_end()) break; }
class TotalsCursor {
 public:
  explicit TotalsCursor(const TraceIndex& index);

  [[nodiscard]] std::uint32_t position() const noexcept { return position_; }
  [[nodiscard]] const Totals& totals() const noexcept { return totals_; }
  [[nodiscard]] bool is_at_end() const noexcept { return position_ == index_.end_position(); }
  // Over one event.
  void step();

 private:
  void free_requested(const Lifetime& lifetime, std::uint32_t event);
  void end(const Lifetime& lifetime);

  const TraceIndex& index_;
  std::uint32_t position_ = 0;
  std::size_t next_odd_end_ = 0;
  Totals totals_{};
};

}  // namespace headroom::analysis
