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
#include "headroom/device/internal/ids.h"
#include "headroom/device/internal/status.h"
#include "headroom/device/meta/internal/device_state.h"
#include "headroom/device/meta/internal/meta_state.h"

namespace headroom::device {
namespace {

using internal::fail;
using internal::guarded;

constexpr std::uint64_t kSegmentAlignment = 512;  // the contract's

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

}  // namespace

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
    auto rebuilt =
        internal::rebuild(state, s.empty_ledger(), internal::make_arena(s.options.capacity_bytes));
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
