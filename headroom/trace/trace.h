// A recording in memory: what every tool reads, whatever file or allocator it came from.
//
//   Trace          everything in one file: tables, final segments, settings, and per device a ...
//   DeviceTrace    the history of one device on one rank: ...
//   Events         columns, one entry per recorded action, oldest first (37 bytes an event).
//
// Words are PyTorch's: an `alloc` carries the size asked for; a block is gone at `free_completed`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/memory/event.h"
#include "headroom/memory/types.h"
#include "headroom/trace/tables.h"
#include "headroom/trace/value.h"

namespace headroom::trace {

using memory::Action;
using memory::DeviceAddress;

// Fields that few events have or that most share; interned, so an event holds one number for all.
// An absent field is one the file did not have: it is not written again.
struct Details {
  std::optional<StringId> compile_context{};
  std::optional<StringId> user_metadata{};  // in our own recordings, the annotation path
  std::optional<memory::PoolId> pool{};
  std::optional<memory::Category> category{};
  std::optional<std::vector<StringId>> forward_frames{};
  bool has_time = true;
  std::uint32_t extras = 0;  // a dictionary in Trace::extras

  friend auto operator<=>(const Details&, const Details&) = default;
};
using DetailsId = std::uint32_t;

// One entry of Events, put together.
struct Entry {
  Action action = Action::kAlloc;
  DeviceAddress address = 0;     // in an `oom`: the device's free bytes
  std::uint64_t size_bytes = 0;  // as asked for in alloc and free; rounded in `oom`
  std::uint64_t stream = 0;      // the handle's value, as recorded; 0 is the default stream
  std::int64_t time_us = 0;      // since 1970
  StackId stack = 0;
  DetailsId details = 0;

  friend bool operator==(const Entry&, const Entry&) = default;
};

class Events {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return actions_.size(); }
  [[nodiscard]] bool empty() const noexcept { return actions_.empty(); }
  void reserve(std::size_t count);
  [[nodiscard]] std::size_t capacity() const noexcept { return actions_.capacity(); }
  void push_back(const Entry& entry);

  [[nodiscard]] Entry operator[](std::size_t i) const;
  [[nodiscard]] Action action(std::size_t i) const { return actions_[i]; }
  [[nodiscard]] DeviceAddress address(std::size_t i) const { return addresses_[i]; }
  [[nodiscard]] std::uint64_t size_bytes(std::size_t i) const { return sizes_[i]; }
  [[nodiscard]] std::uint64_t stream(std::size_t i) const { return streams_[stream_ids_[i]]; }
  [[nodiscard]] std::uint32_t stream_index(std::size_t i) const { return stream_ids_[i]; }
  [[nodiscard]] std::int64_t time_us(std::size_t i) const { return times_[i]; }
  [[nodiscard]] StackId stack(std::size_t i) const { return stacks_[i]; }
  [[nodiscard]] DetailsId details(std::size_t i) const { return details_[i]; }

  // The streams in order of first appearance.
  [[nodiscard]] const std::vector<std::uint64_t>& streams() const noexcept { return streams_; }

  friend bool operator==(const Events&, const Events&) = default;

 private:
  std::vector<Action> actions_;
  std::vector<DeviceAddress> addresses_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint32_t> stream_ids_;
  std::vector<std::int64_t> times_;
  std::vector<StackId> stacks_;
  std::vector<DetailsId> details_;
  std::vector<std::uint64_t> streams_;
  std::map<std::uint64_t, std::uint32_t> stream_index_;  // in order: no file makes it slow
};

struct DeviceTrace {
  int device = 0;
  int rank = 0;
  bool is_host = false;  // pinned memory: PyTorch's host_traces
  Events events{};
  std::uint64_t dropped_events = 0;  // that the recorder had no room for, where it says so

  friend bool operator==(const DeviceTrace&, const DeviceTrace&) = default;
};

// The final state. Sums that a segment repeats (allocated, active, requested) are kept as recorded.
struct Block {
  std::optional<DeviceAddress> address{};  // older files leave it to be summed up
  std::uint64_t size_bytes = 0;
  std::optional<std::uint64_t> requested_bytes{};  // stale where inactive
  memory::BlockState state = memory::BlockState::kInactive;
  StackId stack = 0;
  DetailsId details = 0;

  friend bool operator==(const Block&, const Block&) = default;
};

struct Segment {
  int device = 0;
  int rank = 0;
  bool is_host = false;
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  std::optional<std::uint64_t> allocated_bytes{};
  std::optional<std::uint64_t> active_bytes{};
  std::optional<std::uint64_t> requested_bytes{};
  std::uint64_t stream = 0;
  bool is_small = false;
  std::optional<bool> is_expandable{};
  std::optional<memory::PoolId> pool{};
  StackId stack = 0;
  DetailsId details = 0;
  std::vector<Block> blocks{};

  friend bool operator==(const Segment&, const Segment&) = default;
};

// Whether a segment of a snapshot belongs to that history.
[[nodiscard]] inline bool is_of(const Segment& segment, const DeviceTrace& device) noexcept {
  return segment.device == device.device && segment.rank == device.rank &&
         segment.is_host == device.is_host;
}

// A named moment: the start or the end of a scope of the program.
struct Annotation {
  StringId name = 0;
  bool is_start = true;
  int device = 0;
  int rank = 0;
  std::int64_t time_us = 0;
  std::uint32_t extras = 0;

  friend bool operator==(const Annotation&, const Annotation&) = default;
};

enum class Origin : std::uint8_t { kPyTorch, kHeadroom };

// Interns Details; 0 is the default (nothing but a time).
class DetailsTable {
 public:
  DetailsTable();
  DetailsId intern(const Details& details);
  [[nodiscard]] const Details& operator[](DetailsId id) const { return rows_[id]; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(rows_.size());
  }

 private:
  std::vector<Details> rows_;
  std::map<Details, DetailsId> ids_;
};

struct Trace {
  Origin origin = Origin::kPyTorch;
  std::string producer{};  // "headroom 0.1.0"; empty where the file does not say
  StringTable strings{};
  StackTable stacks{};
  DetailsTable details{};
  std::vector<Value> extras{Value{}};  // 0 is nothing

  std::vector<DeviceTrace> devices{};     // by rank, then device; may be empty of events
  std::vector<Segment> segments{};        // in the file's order
  std::vector<Annotation> annotations{};  // external_annotations
  std::optional<Value> settings{};        // allocator_settings
  std::uint32_t top_level_extras = 0;     // unknown keys beside these
  bool has_annotations = false;           // the key was there, be it empty
  bool has_host = false;                  // host_segments and host_traces were there
  bool is_bare_list = false;              // an old file: segments only

  // PYTORCH_CUDA_ALLOC_CONF as recorded, or empty.
  [[nodiscard]] std::string settings_string() const;
  [[nodiscard]] std::size_t event_count() const noexcept;
};

}  // namespace headroom::trace
