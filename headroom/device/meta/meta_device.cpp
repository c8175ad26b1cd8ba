#include "headroom/device/meta/meta_device.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/device/internal/gap_map.h"
#include "headroom/device/internal/ids.h"
#include "headroom/device/internal/ledger.h"
#include "headroom/device/internal/status.h"
#include "headroom/device/meta/internal/meta_state.h"

namespace headroom::device {
namespace {

using internal::fail;
using internal::GapMap;
using internal::Ledger;

constexpr std::uint64_t kSegmentAlignment = 512;  // the contract's
constexpr std::align_val_t kPinnedAlignment{4096};

// Where a driver puts things: below 128 TiB, falling. Wider when the capacity asks for it, since
// addresses cost nothing here.
constexpr DeviceAddress kArenaBegin = 1_TiB;
constexpr DeviceAddress kArenaEnd = 127_TiB;

GapMap make_arena(std::uint64_t capacity_bytes) {
  return {kArenaBegin, std::max(kArenaEnd, kArenaBegin + round_up(2 * capacity_bytes, 1_TiB))};
}

struct StreamRecord {
  std::uint64_t recorded = 0;   // events recorded on it
  std::uint64_t completed = 0;  // the first so many of them are complete
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

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidArgument("meta device: " + message);
}

void check_options(const MetaOptions& options) {
  const BackendProfile& profile = options.profile;
  require(options.index >= 0, "the index must not be negative");
  require(options.capacity_bytes > 0 && options.capacity_bytes < kAbsurdSize,
          "a capacity of " + format_bytes(options.capacity_bytes) +
              " cannot be; give more than zero and less than 1EiB");
  for (const std::uint64_t step : {profile.granularity_bytes, profile.segment_alignment_bytes}) {
    require(is_power_of_two(step) && step >= kSegmentAlignment && step < kAbsurdSize,
            "granularity and segment alignment must be powers of two of 512 bytes at least, not " +
                format_count(step));
  }
}

Properties make_properties(const MetaOptions& options) {
  return {
      .id = {.kind = DeviceKind::kMeta, .index = options.index},
      .name = "addresses only, as on " + std::string(to_string(options.profile.stands_for)),
      .total_bytes = options.capacity_bytes,
      .granularity_bytes = options.profile.granularity_bytes,
      .max_reservation_bytes = options.profile.max_reservation_bytes,
      .multiprocessors = options.profile.multiprocessors,
      .architecture = options.profile.architecture,
      .has_virtual_memory = options.profile.has_virtual_memory,
      .stands_for = options.profile.stands_for,
      .hierarchy = {
          {.name = "global memory", .size_bytes = options.capacity_bytes, .shared_by = "device"}}};
}

// What Device::perform does, for the calls that only a meta device has.
template <class T, class Body>
DeviceResult<T> guarded(const char* call, bool is_forked, Body&& body) noexcept {
  DeviceStatus status{};
  try {
    if (is_forked) {
      status.code = StatusCode::kForked;
    } else {
      DeviceResult<T> result = body();
      if (result) return result;
      status = result.error();
    }
  } catch (const std::bad_alloc&) {
    status.code = StatusCode::kOutOfHostMemory;
  } catch (...) {
    status.detail = "an exception inside the backend";
  }
  status.call = call;
  return Unexpected(status);
}

}  // namespace

// Everything below requires `mutex`.
struct MetaDevice::State {
  explicit State(const MetaOptions& chosen)
      : options(chosen),
        ledger(empty_ledger()),
        gaps(make_arena(chosen.capacity_bytes)),
        streams{{StreamId::kDefault, StreamRecord{}}} {}

  [[nodiscard]] Ledger empty_ledger() const {
    return Ledger({.capacity_bytes = options.capacity_bytes,
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
  [[nodiscard]] DeviceResult<StreamRecord*> live_stream(StreamId stream) noexcept {
    const auto it = streams.find(stream);
    if (it == streams.end() || it->second.is_released) {
      return fail(StatusCode::kUnknownHandle,
                  "not a stream of this device, or released",
                  to_integer(stream));
    }
    return &it->second;
  }

  [[nodiscard]] DeviceResult<EventRecord> event(EventId id) const noexcept {
    const auto it = events.find(id);
    if (it == events.end()) {
      return fail(
          StatusCode::kUnknownHandle, "not an event of this device, or released", to_integer(id));
    }
    return it->second;
  }

  DeviceResult<void> complete_up_to(EventId id) noexcept {
    const auto record = event(id);
    if (!record) return Unexpected(record.error());
    StreamRecord& stream = streams.find(record->stream)->second;
    stream.completed = std::max(stream.completed, record->position);
    return {};
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
  Ledger ledger;
  CallWatch* watch = nullptr;
  // The arena less the ledger's segments and reservations.
  GapMap gaps;
  std::deque<DeviceAddress> segment_places;
  std::deque<DeviceAddress> reservation_places;
  // Released ones stay, because blocks may go on naming them.
  std::unordered_map<StreamId, StreamRecord> streams;
  std::unordered_map<EventId, EventRecord> events;
  std::unordered_map<void*, PinnedMemory> pinned;
};

std::optional<std::string> MetaDevice::State::broken_invariant() const {
  if (auto broken = ledger.check_invariants()) return broken;
  std::map<DeviceAddress, std::uint64_t> used = ledger.segments();
  used.insert(ledger.reservations().begin(), ledger.reservations().end());
  std::map<DeviceAddress, DeviceAddress> expected;
  DeviceAddress at = gaps.begin();
  for (const auto& [address, size] : used) {
    if (address >= gaps.end()) break;
    if (address > at) expected.emplace(at, address);
    at = std::max(at, address + size);
  }
  if (at < gaps.end()) expected.emplace(at, gaps.end());
  if (expected != gaps.gaps()) return "the gaps are not the arena less what exists";
  return std::nullopt;
}

std::unique_ptr<MetaDevice> MetaDevice::create(const MetaOptions& options) {
  check_options(options);
  return std::unique_ptr<MetaDevice>(
      new MetaDevice(make_properties(options), std::make_unique<State>(options)));
}

MetaDevice::MetaDevice(Properties properties, std::unique_ptr<State> state)
    : Device(std::move(properties)), state_(std::move(state)) {}

MetaDevice::~MetaDevice() { detach(); }

const BackendProfile& MetaDevice::profile() const noexcept { return state_->options.profile; }

void MetaDevice::set_watch(CallWatch* watch) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->watch = watch;
}

std::chrono::nanoseconds MetaDevice::now() const noexcept {
  return state_->options.clock ? state_->options.clock() : std::chrono::nanoseconds{0};
}

bool MetaDevice::owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept {
  if (is_forked()) return false;  // some thread of the parent may have held the lock
  const std::lock_guard lock(state_->mutex);
  return state_->ledger.owns_range(address, size_bytes);
}

std::optional<std::string> MetaDevice::check_invariants() const {
  const std::lock_guard lock(state_->mutex);
  return state_->broken_invariant();
}

// --- Segments ---------------------------------------------------------------------------------

void MetaDevice::place_next_segment(DeviceAddress address) {
  const std::lock_guard lock(state_->mutex);
  state_->segment_places.push_back(address);
}

void MetaDevice::place_next_reservation(DeviceAddress address) {
  const std::lock_guard lock(state_->mutex);
  state_->reservation_places.push_back(address);
}

void MetaDevice::forget_places() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->segment_places.clear();
  state_->reservation_places.clear();
}

DeviceResult<DeviceAddress> MetaDevice::do_allocate_segment(std::uint64_t size_bytes) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (auto room = s.ledger.check_room(size_bytes); !room) return Unexpected(room.error());
  const bool is_placed = !s.segment_places.empty();
  const auto address = is_placed ? std::optional(s.segment_places.front())
                                 : s.invent(size_bytes, s.options.profile.segment_alignment_bytes);
  if (!address) return fail(StatusCode::kOutOfMemory, "no gap in the addresses", size_bytes);
  if (*address % kSegmentAlignment != 0) {
    return fail(StatusCode::kInvalidArgument,
                "the place is not aligned to 512 bytes; address and alignment",
                *address,
                kSegmentAlignment);
  }
  if (auto added = s.ledger.add_segment(*address, size_bytes); !added) {
    return Unexpected(added.error());
  }
  try {
    s.gaps.take(*address, size_bytes);
  } catch (...) {
    s.ledger.remove_segment(*address);
    throw;
  }
  if (is_placed) s.segment_places.pop_front();
  s.tell(Call::kAllocateSegment, size_bytes);
  s.validate();
  return *address;
}

DeviceResult<void> MetaDevice::do_free_segment(DeviceAddress address) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto size_bytes = s.ledger.segment_size(address);
  if (!size_bytes) return Unexpected(size_bytes.error());
  s.gaps.give_back(address, *size_bytes);
  s.ledger.remove_segment(address);
  s.tell(Call::kFreeSegment, *size_bytes);
  s.validate();
  return {};
}

// --- Virtual memory ---------------------------------------------------------------------------

DeviceResult<DeviceAddress> MetaDevice::do_reserve_addresses(std::uint64_t size_bytes) {
  State& s = *state_;
  if (!s.options.profile.has_virtual_memory) {
    return fail(StatusCode::kNotSupported, "this device has no virtual memory");
  }
  const std::lock_guard lock(s.mutex);
  if (auto room = s.ledger.check_reservation(size_bytes); !room) return Unexpected(room.error());
  const bool is_placed = !s.reservation_places.empty();
  const auto address = is_placed ? std::optional(s.reservation_places.front())
                                 : s.invent(size_bytes, s.options.profile.granularity_bytes);
  if (!address) return fail(StatusCode::kOutOfAddressSpace, "no gap is as large", size_bytes);
  if (auto added = s.ledger.add_reservation(*address, size_bytes); !added) {
    return Unexpected(added.error());
  }
  try {
    s.gaps.take(*address, size_bytes);
  } catch (...) {
    s.ledger.remove_reservation(*address);
    throw;
  }
  if (is_placed) s.reservation_places.pop_front();
  s.validate();
  return *address;
}

DeviceResult<void> MetaDevice::do_release_addresses(DeviceAddress address) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto size_bytes = s.ledger.reservation_size(address);
  if (!size_bytes) return Unexpected(size_bytes.error());
  s.gaps.give_back(address, *size_bytes);
  s.ledger.remove_reservation(address);
  s.validate();
  return {};
}

DeviceResult<PageHandle> MetaDevice::do_create_pages(std::uint64_t size_bytes,
                                                     PageOptions /*options*/) {
  const std::lock_guard lock(state_->mutex);
  auto handle = state_->ledger.add_pages(size_bytes, 0);
  if (handle) state_->tell(Call::kCreatePages, size_bytes);
  return handle;
}

DeviceResult<void> MetaDevice::do_release_pages(PageHandle handle) {
  const std::lock_guard lock(state_->mutex);
  const auto pages = state_->ledger.pages(handle);
  if (!pages) return Unexpected(pages.error());
  (void)state_->ledger.release_pages(handle);
  state_->tell(Call::kReleasePages, pages->size_bytes);
  return {};
}

DeviceResult<void> MetaDevice::do_map_pages(DeviceAddress address,
                                            std::span<const PageHandle> handles) {
  const std::lock_guard lock(state_->mutex);
  const auto mapped = state_->ledger.map(address, handles);
  if (!mapped) return Unexpected(mapped.error());
  for (const auto& mapping : *mapped) state_->tell(Call::kMapPages, mapping.size_bytes);
  state_->validate();
  return {};
}

DeviceResult<std::uint64_t> MetaDevice::do_unmap_pages(DeviceAddress address,
                                                       std::uint64_t size_bytes) {
  const std::lock_guard lock(state_->mutex);
  const auto mappings = state_->ledger.mappings_in(address, size_bytes);
  if (!mappings) return Unexpected(mappings.error());
  std::vector<internal::PageRecord> dead;
  dead.reserve(mappings->size());
  state_->ledger.unmap(*mappings, dead);
  for (const auto& mapping : *mappings) state_->tell(Call::kUnmapPages, mapping.size_bytes);
  state_->validate();
  return std::uint64_t{mappings->size()};
}

// --- Streams and events -----------------------------------------------------------------------

DeviceResult<StreamId> MetaDevice::do_create_stream(StreamOptions /*options*/) {
  const std::lock_guard lock(state_->mutex);
  // An adopted stream may have any number.
  for (;;) {
    const auto stream = static_cast<StreamId>(internal::next_id());
    if (state_->streams.try_emplace(stream).second) return stream;
  }
}

DeviceResult<StreamId> MetaDevice::do_adopt_stream(NativeStream native) {
  const auto stream = static_cast<StreamId>(native);
  const std::lock_guard lock(state_->mutex);
  state_->streams[stream].is_released = false;
  return stream;
}

DeviceResult<NativeStream> MetaDevice::do_native_stream(StreamId stream) {
  const std::lock_guard lock(state_->mutex);
  if (const auto live = state_->live_stream(stream); !live) return Unexpected(live.error());
  return to_integer(stream);
}

DeviceResult<void> MetaDevice::do_release_stream(StreamId stream) {
  const std::lock_guard lock(state_->mutex);
  const auto live = state_->live_stream(stream);
  if (!live) return Unexpected(live.error());
  (*live)->is_released = true;
  return {};
}

DeviceResult<void> MetaDevice::do_synchronize_stream(StreamId stream) {
  const std::lock_guard lock(state_->mutex);
  const auto live = state_->live_stream(stream);
  if (!live) return Unexpected(live.error());
  (*live)->completed = (*live)->recorded;
  return {};
}

DeviceResult<bool> MetaDevice::do_is_capturing(StreamId stream) {
  if (auto accepted = state_->accept_work(stream); !accepted) return Unexpected(accepted.error());
  return false;
}

DeviceResult<EventId> MetaDevice::do_record_event(StreamId stream, EventOptions options) {
  const std::chrono::nanoseconds time = now();
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto it = s.streams.find(stream);  // a released one will do
  if (it == s.streams.end()) {
    return fail(StatusCode::kUnknownHandle, "not a stream of this device", to_integer(stream));
  }
  if (options.is_timed && it->second.is_released) {
    return fail(StatusCode::kUnknownHandle,
                "a timed event needs a stream that was not released",
                to_integer(stream));
  }
  const auto event = static_cast<EventId>(internal::next_id());
  EventRecord record{.stream = stream, .position = it->second.recorded + 1};
  if (options.is_timed) record.time = time;
  s.events.emplace(event, record);
  ++it->second.recorded;
  if (s.options.events == EventCompletion::kAtOnce) it->second.completed = it->second.recorded;
  return event;
}

DeviceResult<bool> MetaDevice::do_query_event(EventId event) {
  const std::lock_guard lock(state_->mutex);
  const auto record = state_->event(event);
  if (!record) return Unexpected(record.error());
  return record->position <= state_->streams.find(record->stream)->second.completed;
}

DeviceResult<void> MetaDevice::do_wait_event(StreamId stream, EventId event) {
  const std::lock_guard lock(state_->mutex);
  if (const auto live = state_->live_stream(stream); !live) return Unexpected(live.error());
  if (const auto record = state_->event(event); !record) return Unexpected(record.error());
  return {};
}

DeviceResult<void> MetaDevice::do_synchronize_event(EventId event) {
  const std::lock_guard lock(state_->mutex);
  return state_->complete_up_to(event);
}

DeviceResult<double> MetaDevice::do_elapsed_ms(EventId begin, EventId end) {
  const std::lock_guard lock(state_->mutex);
  const auto first = state_->event(begin);
  if (!first) return Unexpected(first.error());
  const auto last = state_->event(end);
  if (!last) return Unexpected(last.error());
  if (!first->time || !last->time) return internal::not_timed();
  for (const EventId event : {begin, end}) {
    if (auto passed = state_->complete_up_to(event); !passed) return Unexpected(passed.error());
  }
  return std::chrono::duration<double, std::milli>(*last->time - *first->time).count();
}

DeviceResult<void> MetaDevice::do_release_event(EventId event) {
  const std::lock_guard lock(state_->mutex);
  if (const auto record = state_->event(event); !record) return Unexpected(record.error());
  state_->events.erase(event);
  return {};
}

DeviceResult<void> MetaDevice::complete_events(StreamId stream) noexcept {
  return guarded<void>("complete_events", is_forked(), [&]() -> DeviceResult<void> {
    const std::lock_guard lock(state_->mutex);
    const auto it = state_->streams.find(stream);
    if (it == state_->streams.end()) {
      return fail(StatusCode::kUnknownHandle, "not a stream of this device", to_integer(stream));
    }
    it->second.completed = it->second.recorded;
    return {};
  });
}

DeviceResult<void> MetaDevice::complete_event(EventId event) noexcept {
  return guarded<void>("complete_event", is_forked(), [&] {
    const std::lock_guard lock(state_->mutex);
    return state_->complete_up_to(event);
  });
}

// --- Work in stream order ---------------------------------------------------------------------

DeviceResult<void> MetaDevice::do_copy_to_device(DeviceAddress /*to*/,
                                                 const void* /*from*/,
                                                 std::uint64_t /*size_bytes*/,
                                                 StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_copy_to_host(void* /*to*/,
                                               DeviceAddress /*from*/,
                                               std::uint64_t /*size_bytes*/,
                                               StreamId stream) {
  if (auto accepted = state_->accept_work(stream); !accepted) return accepted;
  return fail(StatusCode::kNotSupported, "a meta device has addresses only, no values to copy");
}

DeviceResult<void> MetaDevice::do_copy_within(DeviceAddress /*to*/,
                                              DeviceAddress /*from*/,
                                              std::uint64_t /*size_bytes*/,
                                              StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_copy_peer(DeviceAddress /*to*/,
                                            Device& /*source*/,
                                            DeviceAddress /*from*/,
                                            std::uint64_t /*size_bytes*/,
                                            StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_fill(DeviceAddress /*to*/,
                                       std::uint8_t /*value*/,
                                       std::uint64_t /*size_bytes*/,
                                       StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_enqueue_host(StreamId stream, HostTask task) {
  if (auto accepted = state_->accept_work(stream); !accepted) return accepted;
  task.run(task.data);  // without the lock: it may call the device
  return {};
}

DeviceResult<void*> MetaDevice::do_allocate_pinned(std::uint64_t size_bytes) {
  PinnedMemory memory(::operator new(size_bytes, kPinnedAlignment, std::nothrow));
  if (memory == nullptr) {
    return fail(StatusCode::kOutOfHostMemory, "the host has no such memory", size_bytes);
  }
  void* const pointer = memory.get();
  const std::lock_guard lock(state_->mutex);
  state_->pinned.emplace(pointer, std::move(memory));
  return pointer;
}

DeviceResult<void> MetaDevice::do_free_pinned(void* pointer) {
  const std::lock_guard lock(state_->mutex);
  if (state_->pinned.erase(pointer) == 0) {
    return fail(StatusCode::kUnknownHandle, "not pinned memory of this device, or freed");
  }
  return {};
}

// --- Questions --------------------------------------------------------------------------------

DeviceResult<MemoryInfo> MetaDevice::do_memory_info() {
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t total = state_->options.capacity_bytes;
  return MemoryInfo{.free_bytes = total - state_->ledger.used_bytes(), .total_bytes = total};
}

DeviceResult<std::vector<ProcessMemory>> MetaDevice::do_processes() {
  return std::vector<ProcessMemory>{};
}

DeviceResult<std::vector<MemoryLevel>> MetaDevice::do_measure() {
  return fail(StatusCode::kNotSupported, "a meta device has no memory to measure");
}

// --- A history that starts in the middle ------------------------------------------------------

DeviceResult<std::vector<RestoredPages>> MetaDevice::restore(const MetaState& state) noexcept {
  using Restored = std::vector<RestoredPages>;
  return guarded<Restored>("restore", is_forked(), [&]() -> DeviceResult<Restored> {
    State& s = *state_;
    const std::lock_guard lock(s.mutex);
    if (!s.ledger.segments().empty() || !s.ledger.reservations().empty() ||
        !s.ledger.all_pages().empty()) {
      return fail(StatusCode::kInvalidArgument,
                  "the device holds memory already; bytes used",
                  s.ledger.used_bytes());
    }
    auto rebuilt = internal::rebuild(state, s.empty_ledger(), make_arena(s.options.capacity_bytes));
    if (!rebuilt) return Unexpected(rebuilt.error());
    auto streams = s.streams;
    for (const StreamId stream : state.streams) streams[stream].is_released = false;

    s.ledger = std::move(rebuilt->ledger);
    s.gaps = std::move(rebuilt->gaps);
    s.streams = std::move(streams);
    s.validate();
    return std::move(rebuilt->restored);
  });
}

MetaState MetaDevice::state() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  MetaState out = internal::describe(s.ledger);
  for (const auto& [stream, record] : s.streams) {
    if (stream != StreamId::kDefault && !record.is_released) out.streams.push_back(stream);
  }
  std::ranges::sort(out.streams);
  return out;
}

}  // namespace headroom::device
