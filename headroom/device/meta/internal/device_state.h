// The state of a MetaDevice: its books, its free addresses, its streams and events.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/device/internal/departed_streams.h"
#include "headroom/device/internal/gap_map.h"
#include "headroom/device/internal/guarded.h"
#include "headroom/device/internal/ledger.h"
#include "headroom/device/internal/status.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::device {
namespace internal {

inline constexpr std::align_val_t kPinnedAlignment{4096};

// Where a driver puts things: below 128 TiB, falling. Wider when the capacity asks for it, since
// addresses cost nothing here.
inline constexpr DeviceAddress kArenaBegin = 1_TiB;
inline constexpr DeviceAddress kArenaEnd = 127_TiB;

inline GapMap make_arena(std::uint64_t capacity_bytes) {
  return {kArenaBegin, std::max(kArenaEnd, kArenaBegin + round_up(2 * capacity_bytes, 1_TiB))};
}

struct StreamRecord {
  std::uint64_t recorded = 0;   // events recorded on it
  std::uint64_t completed = 0;  // how many of them are, the first ones
  bool is_released = false;
};

struct EventRecord {
  StreamId stream = StreamId::kDefault;
  std::uint64_t position = 0;  // the n-th event of its stream, from 1 on
  // By now(), where it is timed: nothing here takes time, so it is when it was recorded.
  std::optional<std::chrono::nanoseconds> time{};
};

struct PinnedDeleter {
  void operator()(void* pointer) const noexcept { ::operator delete(pointer, kPinnedAlignment); }
};
using PinnedMemory = std::unique_ptr<void, PinnedDeleter>;

}  // namespace internal

// Everything below requires `mutex`.
struct MetaDevice::State {
  explicit State(const MetaOptions& chosen)
      : options(chosen),
        ledger(empty_ledger()),
        gaps(internal::make_arena(chosen.capacity_bytes)),
        streams{{StreamId::kDefault, internal::StreamRecord{}}} {}

  [[nodiscard]] internal::Ledger empty_ledger() const {
    return internal::Ledger({.capacity_bytes = options.capacity_bytes,
                             .granularity_bytes = options.profile.granularity_bytes,
                             .max_reservation_bytes = options.profile.max_reservation_bytes,
                             .max_mappings = options.profile.max_mappings});
  }

  // A place for `size_bytes`. The search is for whole steps, so that the slivers between an odd
  // size and the next step are never candidates.
  [[nodiscard]] std::optional<DeviceAddress> invent(std::uint64_t size_bytes,
                                                    std::uint64_t step) const noexcept {
    const std::uint64_t need = round_up(size_bytes, step);
    return options.addresses == AddressOrder::kDescending ? gaps.highest(need, step)
                                                          : gaps.lowest(need, step);
  }

  // A stream that work may be queued on.
  [[nodiscard]] DeviceResult<internal::StreamRecord*> live_stream(StreamId stream) noexcept {
    const auto it = streams.find(stream);
    if (it == streams.end() || it->second.is_released) {
      return internal::fail(StatusCode::kUnknownHandle,
                            "not a stream of this device, or released",
                            to_integer(stream));
    }
    return &it->second;
  }

  [[nodiscard]] DeviceResult<internal::EventRecord> event(EventId id) const noexcept {
    const auto it = events.find(id);
    if (it == events.end()) {
      return internal::fail(
          StatusCode::kUnknownHandle, "not an event of this device, or released", to_integer(id));
    }
    return it->second;
  }

  DeviceResult<void> complete_up_to(EventId id) noexcept {
    const auto record = event(id);
    if (!record) return Unexpected(record.error());
    const auto stream = streams.find(record->stream);
    if (stream == streams.end()) return {};  // forgotten, since its work is over
    stream->second.completed = std::max(stream->second.completed, record->position);
    return {};
  }

  [[nodiscard]] bool is_complete(const internal::EventRecord& record) const noexcept {
    const auto stream = streams.find(record.stream);
    return stream == streams.end() || record.position <= stream->second.completed;
  }

  void forget(StreamId stream) noexcept {
    const auto it = streams.find(stream);
    if (it == streams.end()) return;
    const internal::StreamRecord& record = it->second;
    // It may have been adopted again, or be one whose events have to be completed by hand.
    if (record.is_released && record.completed == record.recorded) streams.erase(it);
  }

  // Work that is checked and then does nothing.
  DeviceResult<void> accept_work(StreamId stream) noexcept {
    const std::lock_guard lock(mutex);
    if (const auto live = live_stream(stream); !live) return Unexpected(live.error());
    return {};
  }

  void tell(Call call, std::uint64_t size_bytes) const noexcept {
    if (watch != nullptr) watch->device_called(call, size_bytes);
  }

  [[nodiscard]] std::optional<std::string> broken_invariant() const;
  void validate() const {
#ifdef HEADROOM_VALIDATE
    // Walks everything, so only while that is little.
    if (ledger.segments().size() + ledger.mappings().size() > 256) return;
    HEADROOM_CHECK(!broken_invariant(), "a meta device's books do not agree");
#endif
  }

  const MetaOptions options;
  mutable std::mutex mutex;
  internal::Ledger ledger;
  CallWatch* watch = nullptr;
  // The arena less the ledger's segments and reservations.
  internal::GapMap gaps;
  std::deque<DeviceAddress> segment_places;
  std::deque<DeviceAddress> reservation_places;
  // Released ones stay for long, because blocks may go on naming them.
  std::unordered_map<StreamId, internal::StreamRecord> streams;
  internal::DepartedStreams departed;
  std::unordered_map<EventId, internal::EventRecord> events;
  std::unordered_map<void*, internal::PinnedMemory> pinned;
};

}  // namespace headroom::device
