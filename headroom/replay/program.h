// A recorded history as a program: what was asked of the allocator, in order, without addresses.
//
//   const Program program = compile(trace, trace.devices[0]);   // or, for other settings,
//                                                               // compile_with_empty_caches()
//   const ReplayResult result = replay(program, {.config = program.config});     // player.h
//
// Which block a free means is found once, here, so that replaying under a hundred settings hashes
// nothing. Every block has a slot; a slot is reused once its block has ended. What does not fit
// together in a recording (a free of nothing, an allocation at a live address) is counted, and the
// program is one that can be run all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/analysis/lifetimes.h"
#include "headroom/analysis/start_state.h"
#include "headroom/memory/config.h"
#include "headroom/memory/types.h"
#include "headroom/replay/recorded_limit.h"
#include "headroom/trace/trace.h"

namespace headroom::replay {

using memory::DeviceAddress;
using memory::StreamId;

enum class OpKind : std::uint8_t {
  kAllocate,    // `size_bytes` on `stream`, into the slot
  kFree,        // at once
  kFreeHeld,    // another stream still uses the block ...
  kComplete,    // ... and now is done with it
  kFailed,      // a request that failed when it was recorded (an `oom` entry)
  kEmptyCache,  // the program gave the cache back; inferred, since nothing records it, and only
                // from PyTorch's decisions: our own allocator unmaps pages when it likes
};

struct Op {
  // As asked for; rounded in kFailed. In kFreeHeld and kComplete the number of the hold: holds
  // are numbered as they complete, since the order in which neighbours merge shows in counters.
  std::uint64_t size_bytes = 0;
  std::uint32_t slot = 0;
  std::uint16_t stream = 0;  // in Program::streams
  OpKind kind = OpKind::kAllocate;
  std::uint8_t pool = 0;  // in Program::pools

  friend bool operator==(const Op&, const Op&) = default;
};
static_assert(sizeof(Op) == 16);

// A block that was there before the first event.
struct StartSlot {
  DeviceAddress address = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t hold = 0;  // its number, where it is pending
  std::uint32_t slot = 0;
  std::uint16_t stream = 0;
  bool is_pending = false;
};

// Part of the addresses that an expandable segment had reserved before the first event; as much of
// it as the recording shows.
struct StartReservation {
  DeviceAddress address = 0;  // the lowest ever mapped
  StreamId stream = StreamId::kDefault;
  memory::PoolId pool{};
  bool is_small = false;
};

struct Program {
  // The recording that it was compiled from, which must outlive it.
  const trace::Trace* trace = nullptr;
  const trace::DeviceTrace* device = nullptr;

  std::vector<Op> ops{};
  std::vector<std::uint32_t> op_events{};  // the event of the recording that each op stems from
  std::uint32_t slot_count = 0;
  std::vector<StreamId> streams{};      // the default stream first
  std::vector<memory::PoolId> pools{};  // the default pool first

  // The state before the first event; empty where the history is whole.
  analysis::StartState start{};
  std::vector<StartSlot> start_slots{};
  std::vector<StartReservation> start_reservations{};
  bool starts_with_live_blocks = false;  // it was changed by from_live_blocks()

  // As recorded; PyTorch's factory settings where our own allocator was recorded.
  bool is_of_paged = false;
  std::string conf{};
  memory::AllocatorConfig config{};
  memory::PyTorchVersion version{};  // as far as the fields of the recording say
  bool is_version_known = false;     // by a field that only some versions have
  RecordedLimit limit{};

  std::uint64_t events = 0;  // of the recording, whatever their action
  std::uint64_t allocs = 0;
  std::uint64_t failures = 0;      // recorded ones
  std::uint64_t empty_caches = 0;  // kEmptyCache ops
  std::uint64_t peak_live = 0;
  // The same if every request that failed had been served, each for its moment alone.
  std::uint64_t peak_live_if_served = 0;
  std::size_t peak_live_op = 0;
  std::optional<std::size_t> first_failure_op{};
  analysis::Anomalies anomalies{};

  [[nodiscard]] bool is_whole() const noexcept {
    return start.is_empty() && !starts_with_live_blocks;
  }
  // Of the event that the op stems from.
  [[nodiscard]] std::int64_t time_us_at(std::size_t op) const;
  // From that op to the last, as recorded; 0 where no times were.
  [[nodiscard]] std::uint64_t duration_us(std::size_t from_op = 0) const;
};

// The release of PyTorch that wrote a recording, as far as its fields say.
struct RecordedVersion {
  memory::PyTorchVersion version{};
  bool is_known = false;  // by a field that only some versions have
};
[[nodiscard]] RecordedVersion recorded_version(const trace::Trace& trace);

struct CompileOptions {
  // Those the recording is known to have been made under; else recorded_version(), and
  // kDefaultCardBytes.
  std::optional<memory::PyTorchVersion> version{};
  std::optional<std::uint64_t> card_bytes{};
};

// Reads the events and runs nothing: calls that no event shows (kEmptyCache) are not in it;
// infer_empty_caches.h finds those. Throws Error where the device's history is that of pinned
// memory, or has over 65,535 streams.
[[nodiscard]] Program compile(const trace::Trace& trace,
                              const trace::DeviceTrace& device,
                              const CompileOptions& options = {});

// A recording that starts in the middle, as one that starts with allocating the blocks that were
// live then: what was cached is left out, for another allocator would have cached something else.
// Nothing else compares two allocators fairly. A whole history is as it was.
[[nodiscard]] Program from_live_blocks(Program program);

// The histories that can be replayed: devices with at least one event, without pinned memory.
[[nodiscard]] std::vector<const trace::DeviceTrace*> replayable(const trace::Trace& trace);

}  // namespace headroom::replay
