#include "headroom/device/cpu/internal/memory.h"

#include <cerrno>
#include <memory>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/check.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cpu/internal/areas.h"
#include "headroom/device/cpu/internal/bytes.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/cpu/internal/room.h"
#include "headroom/device/cpu/internal/stream_table.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

// Large segments start where a huge page can.
constexpr std::uint64_t kSegmentAlignment = 2_MiB;

// Gives a segment back when its last holder has gone, if told to.
struct DyingSegment {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  bool is_armed = false;

  DyingSegment(DeviceAddress at, std::uint64_t size) noexcept : address(at), size_bytes(size) {}
  DyingSegment(const DyingSegment&) = delete;
  DyingSegment& operator=(const DyingSegment&) = delete;
  ~DyingSegment() {
    if (!is_armed) return;
    drop_area(AreaUse::kMemory, address, size_bytes);
    return_room(RoomUse::kSegment, size_bytes);
  }
};

// Adjacent mappings are cleared together: the fewer calls, the better.
std::span<const Mapping> leading_run(std::span<const Mapping> mappings) noexcept {
  std::size_t count = 1;
  while (count < mappings.size() &&
         mappings[count - 1].address + mappings[count - 1].size_bytes == mappings[count].address) {
    ++count;
  }
  return mappings.first(count);
}

std::uint64_t total_bytes(std::span<const Mapping> mappings) noexcept {
  std::uint64_t sum = 0;
  for (const Mapping& mapping : mappings) sum += mapping.size_bytes;
  return sum;
}

}  // namespace

CpuMemory::~CpuMemory() {
  std::uint64_t segment_bytes = 0;
  for (const auto& [address, size] : ledger_.segments()) {
    drop_area(AreaUse::kMemory, address, size);
    segment_bytes += size;
  }
  for (const auto& [address, mapping] : ledger_.mappings()) {
    unpoison_bytes(to_pointer(address), mapping.size_bytes);
  }
  for (const auto& [address, size] : ledger_.reservations()) {
    drop_area(AreaUse::kAddresses, address, size);
  }
  return_room(RoomUse::kSegment, segment_bytes);
  return_room(RoomUse::kPages, ledger_.used_bytes() - segment_bytes);
  cpu_process().mappings.fetch_sub(ledger_.mapping_count(), std::memory_order_relaxed);
}

DeviceResult<DeviceAddress> CpuMemory::allocate_segment(std::uint64_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  if (auto room = ledger_.check_room(size_bytes); !room) return Unexpected(room.error());
  auto promise = promise_room(RoomUse::kSegment, size_bytes);
  if (!promise) return Unexpected(promise.error());
  const std::uint64_t alignment =
      size_bytes >= kSegmentAlignment ? kSegmentAlignment : system_page_bytes();
  const auto address = make_area(AreaUse::kMemory, size_bytes, alignment);
  if (!address) return address;
  try {
    if (auto added = ledger_.add_segment(*address, size_bytes); !added) {
      drop_area(AreaUse::kMemory, *address, size_bytes);
      return Unexpected(added.error());
    }
  } catch (...) {
    drop_area(AreaUse::kMemory, *address, size_bytes);
    throw;
  }
  promise->keep();
  validate();
  return address;
}

DeviceResult<Extent> CpuMemory::free_segment(DeviceAddress address, StreamTable& streams) {
  std::shared_ptr<DyingSegment>
      dying;  // outlives the lock, so that the memory goes back without it
  const std::scoped_lock lock(mutex_);
  const auto size = ledger_.segment_size(address);
  if (!size) return Unexpected(size.error());
  dying = std::make_shared<DyingSegment>(address, *size);
  streams.keep_until_passed(dying);
  dying->is_armed = true;
  ledger_.remove_segment(address);
  validate();
  return Extent{.size_bytes = *size};
}

DeviceResult<DeviceAddress> CpuMemory::reserve_addresses(std::uint64_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  if (auto room = ledger_.check_reservation(size_bytes); !room) return Unexpected(room.error());
  const auto address =
      make_area(AreaUse::kAddresses, size_bytes, ledger_.limits().granularity_bytes);
  if (!address) return address;
  try {
    if (auto added = ledger_.add_reservation(*address, size_bytes); !added) {
      drop_area(AreaUse::kAddresses, *address, size_bytes);
      return Unexpected(added.error());
    }
  } catch (...) {
    drop_area(AreaUse::kAddresses, *address, size_bytes);
    throw;
  }
  validate();
  return address;
}

DeviceResult<void> CpuMemory::release_addresses(DeviceAddress address) {
  const std::scoped_lock lock(mutex_);
  const auto size = ledger_.reservation_size(address);
  if (!size) return Unexpected(size.error());
  ledger_.remove_reservation(address);
  drop_area(AreaUse::kAddresses, address, *size);
  validate();
  return {};
}

DeviceResult<PageHandle> CpuMemory::create_pages(std::uint64_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  if (auto room = ledger_.check_room(size_bytes); !room) return Unexpected(room.error());
  auto promise = promise_room(RoomUse::kPages, size_bytes);
  if (!promise) return Unexpected(promise.error());
  const auto offset = file_.allocate(size_bytes);
  if (!offset) return Unexpected(offset.error());
  try {
    auto handle = ledger_.add_pages(size_bytes, *offset);
    if (handle) {
      promise->keep();
      validate();
    } else {
      file_.free(*offset, size_bytes);
    }
    return handle;
  } catch (...) {
    file_.free(*offset, size_bytes);
    throw;
  }
}

DeviceResult<Extent> CpuMemory::release_pages(PageHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto record = ledger_.pages(handle);
  if (!record) return Unexpected(record.error());
  const auto dead = ledger_.release_pages(handle);
  if (!dead) return Unexpected(dead.error());
  if (*dead) give_back(**dead);
  validate();
  return Extent{.size_bytes = record->size_bytes};
}

DeviceResult<Extent> CpuMemory::map_pages(DeviceAddress address,
                                          std::span<const PageHandle> handles) {
  const std::scoped_lock lock(mutex_);
  std::vector<PageRecord> dead;
  dead.reserve(handles.size());
  const auto mappings = ledger_.map(address, handles);
  if (!mappings) return Unexpected(mappings.error());
  CpuProcess& process = cpu_process();
  if (!try_take(process.mappings, handles.size(), CpuDevice::kMaxMappings)) {
    ledger_.unmap(*mappings, dead);
    return fail(StatusCode::kTooManyMappings,
                "more mappings than the process may have at once",
                process.mappings.load() + handles.size(),
                CpuDevice::kMaxMappings);
  }
  if (const int error = map_each(*mappings); error != 0) {
    forget(*mappings, dead);
    return fail(StatusCode::kTooManyMappings, "the system refuses to map", address, 0, error);
  }
  validate();
  return Extent{.size_bytes = total_bytes(*mappings), .handles = handles.size()};
}

DeviceResult<Extent> CpuMemory::unmap_pages(DeviceAddress address, std::uint64_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  const auto mappings = ledger_.mappings_in(address, size_bytes);
  if (!mappings) return Unexpected(mappings.error());
  std::vector<PageRecord> dead;
  dead.reserve(mappings->size());
  if (const int error = clear_each(*mappings); error != 0) {
    return fail(StatusCode::kFailed, "the system refuses to unmap", address, size_bytes, error);
  }
  forget(*mappings, dead);
  for (const PageRecord& record : dead) give_back(record);
  validate();
  return Extent{.size_bytes = total_bytes(*mappings), .handles = mappings->size()};
}

// All of them, or none and an errno.
int CpuMemory::map_each(std::span<const Mapping> mappings) noexcept {
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    const Mapping& mapping = mappings[i];
    const std::uint64_t offset = ledger_.all_pages().find(mapping.handle)->second.backing;
    const int error = file_.map(mapping.address, mapping.size_bytes, offset);
    if (error == 0) continue;
    // Clearing needs no more mappings than there were before, so the system has no reason to say
    // no; if it does, the range is not ours to give to anybody else anyway.
    for (const Mapping& done : mappings.first(i)) {
      [[maybe_unused]] const int ignored = clear_mappings(done.address, done.size_bytes);
    }
    return error;
  }
  return 0;
}

int CpuMemory::clear_each(std::span<const Mapping> mappings) noexcept {
  std::span<const Mapping> rest = mappings;
  while (!rest.empty()) {
    const std::span<const Mapping> run = leading_run(rest);
    const int error = clear_mappings(run.front().address, total_bytes(run));
    if (error != 0) {
      [[maybe_unused]] const int ignored = map_each(mappings.first(mappings.size() - rest.size()));
      return error;
    }
    rest = rest.subspan(run.size());
  }
  return 0;
}

void CpuMemory::forget(std::span<const Mapping> mappings, std::vector<PageRecord>& dead) noexcept {
  ledger_.unmap(mappings, dead);
  cpu_process().mappings.fetch_sub(mappings.size(), std::memory_order_relaxed);
}

void CpuMemory::give_back(const PageRecord& record) noexcept {
  file_.free(record.backing, record.size_bytes);
  return_room(RoomUse::kPages, record.size_bytes);
}

bool CpuMemory::owns_range(DeviceAddress address, std::uint64_t size_bytes) const noexcept {
  const std::scoped_lock lock(mutex_);
  return ledger_.owns_range(address, size_bytes);
}

std::uint64_t CpuMemory::used_bytes() const noexcept {
  const std::scoped_lock lock(mutex_);
  return ledger_.used_bytes();
}

void CpuMemory::validate() const {
#if defined(HEADROOM_VALIDATE)
  // The check walks everything; with very many mappings it would be all that a test does.
  constexpr std::uint64_t kFew = 512;
  if (ledger_.mapping_count() > kFew || ledger_.segments().size() > kFew) return;
  const auto broken = ledger_.check_invariants();
  HEADROOM_CHECK(!broken, broken->c_str());
#endif
}

}  // namespace headroom::device::internal
