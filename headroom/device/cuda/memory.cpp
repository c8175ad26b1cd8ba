#include "headroom/device/cuda/internal/memory.h"

#include <algorithm>
#include <utility>

#include "headroom/device/cuda/internal/host_tasks.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

// The same failure with the number of bytes that were asked for and, where it is not the card's
// memory that ran out, what did.
Unexpected<DeviceStatus> asked_for(DeviceStatus status,
                                   std::uint64_t size_bytes,
                                   StatusCode out_of = StatusCode::kOutOfMemory) noexcept {
  if (status.code == StatusCode::kOutOfMemory) {
    status.code = out_of;
    status.found = size_bytes;
  }
  return Unexpected(status);
}

// Enters a new range of the driver by `add`; where that fails, `give_back` returns it.
template <class Add, class GiveBack>
DeviceResult<DeviceAddress> added_or_given_back(CUdeviceptr address,
                                                const Add& add,
                                                const GiveBack& give_back) {
  try {
    if (auto added = add(); !added) {
      give_back();
      return Unexpected(added.error());
    }
  } catch (...) {
    give_back();
    throw;
  }
  return DeviceAddress{address};
}

}  // namespace

CudaMemory::CudaMemory(CudaContext& context, LedgerLimits limits, PageReaders readers)
    : context_(context),
      by_network_(readers.by_network),
      by_processes_(readers.by_processes),
      ledger_(limits) {}

bool CudaMemory::owns_range(DeviceAddress address, std::uint64_t size_bytes) const noexcept {
  const std::scoped_lock lock(mutex_);
  return ledger_.owns_range(address, size_bytes);
}

std::uint64_t CudaMemory::used_bytes() const noexcept {
  const std::scoped_lock lock(mutex_);
  return ledger_.used_bytes();
}

std::optional<std::string> CudaMemory::check_invariants() const {
  const std::scoped_lock lock(mutex_);
  return ledger_.check_invariants();
}

// --- Segments ----------------------------------------------------------------------------------

DeviceResult<DeviceAddress> CudaMemory::allocate_segment(std::uint64_t size_bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (auto room = ledger_.check_room(size_bytes); !room) return Unexpected(room.error());
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  free_late();
  CUdeviceptr address = 0;
  if (auto made = context_.call(context_.driver().cuMemAlloc, &address, size_bytes); !made) {
    return asked_for(made.error(), size_bytes);
  }
  return added_or_given_back(
      address,
      [&] {
        const std::scoped_lock lock(mutex_);
        return ledger_.add_segment(address, size_bytes);
      },
      [&] { (void)context_.call(context_.driver().cuMemFree, address); });
}

// Out of the ledger first: once the driver has it, the address may come back to another thread.
DeviceResult<void> CudaMemory::free_segment(DeviceAddress address) {
  std::uint64_t size_bytes = 0;
  {
    const std::scoped_lock lock(mutex_);
    const auto size = ledger_.segment_size(address);
    if (!size) return Unexpected(size.error());
    if (is_in_host_task()) {
      late_.segments.push_back(address);
      ledger_.remove_segment(address);
      return {};
    }
    size_bytes = *size;
    ledger_.remove_segment(address);
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (scope) free_late();
  const auto freed = done_if_shut_down(scope ? context_.call(context_.driver().cuMemFree, address)
                                             : DeviceResult<void>(scope.error()));
  if (!freed) {
    // It is still there, and still ours.
    const std::scoped_lock lock(mutex_);
    (void)ledger_.add_segment(address, size_bytes);
  }
  return freed;
}

// Requires a scope.
void CudaMemory::free_late() noexcept {
  if (is_in_host_task()) return;
  Late late;
  {
    const std::scoped_lock lock(mutex_);
    std::swap(late, late_);
  }
  for (const DeviceAddress address : late.segments) {
    (void)context_.call(context_.driver().cuMemFree, address);
  }
  for (void* pointer : late.pinned) {
    (void)context_.call(context_.driver().cuMemFreeHost, pointer);
  }
}

// --- Virtual memory ----------------------------------------------------------------------------

DeviceResult<DeviceAddress> CudaMemory::reserve_addresses(std::uint64_t size_bytes) {
  const std::uint64_t granularity = ledger_.limits().granularity_bytes;
  {
    const std::scoped_lock lock(mutex_);
    if (auto room = ledger_.check_reservation(size_bytes); !room) return Unexpected(room.error());
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  const CudaDriver& driver = context_.driver();
  CUdeviceptr address = 0;
  if (auto made = context_.call(
          driver.cuMemAddressReserve, &address, size_bytes, granularity, CUdeviceptr{0}, 0ULL);
      !made) {
    return asked_for(made.error(), size_bytes, StatusCode::kOutOfAddressSpace);
  }
  return added_or_given_back(
      address,
      [&] {
        const std::scoped_lock lock(mutex_);
        return ledger_.add_reservation(address, size_bytes);
      },
      [&] { (void)context_.call(driver.cuMemAddressFree, address, size_bytes); });
}

DeviceResult<void> CudaMemory::release_addresses(DeviceAddress address) {
  const std::scoped_lock lock(mutex_);
  const auto size = ledger_.reservation_size(address);
  if (!size) return Unexpected(size.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  const auto freed = done_if_shut_down(
      scope ? context_.call(context_.driver().cuMemAddressFree, CUdeviceptr{address}, *size)
            : DeviceResult<void>(scope.error()));
  if (freed) ledger_.remove_reservation(address);
  return freed;
}

DeviceResult<PageHandle> CudaMemory::create_pages(std::uint64_t size_bytes, PageOptions options) {
  {
    const std::scoped_lock lock(mutex_);
    if (auto room = ledger_.check_room(size_bytes); !room) return Unexpected(room.error());
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  free_late();
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = context_.device();
  if (options.exportable && by_processes_) {
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  if (options.exportable) {
    wanted.allocFlags.gpuDirectRDMACapable = by_network_ ? 1 : 0;
  }
  const CudaDriver& driver = context_.driver();
  CUmemGenericAllocationHandle native = 0;
  auto made = context_.call(driver.cuMemCreate, &native, size_bytes, &wanted, 0ULL);
  if (!made && wanted.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      made.error().code != StatusCode::kOutOfMemory) {
    // Some systems, containers among them, say that they share memory and then refuse to.
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    made = context_.call(driver.cuMemCreate, &native, size_bytes, &wanted, 0ULL);
    if (made) by_processes_ = false;
  }
  if (!made) return asked_for(made.error(), size_bytes);
  try {
    const std::scoped_lock lock(mutex_);
    auto handle = ledger_.add_pages(size_bytes, native);
    if (!handle) (void)context_.call(driver.cuMemRelease, native);
    return handle;
  } catch (...) {
    (void)context_.call(driver.cuMemRelease, native);
    throw;
  }
}

// The driver itself keeps released memory until its last mapping goes.
DeviceResult<void> CudaMemory::release_pages(PageHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto pages = ledger_.pages(handle);
  if (!pages) return Unexpected(pages.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  const auto released =
      done_if_shut_down(scope ? context_.call(context_.driver().cuMemRelease,
                                              CUmemGenericAllocationHandle{pages->backing})
                              : DeviceResult<void>(scope.error()));
  if (released) (void)ledger_.release_pages(handle);
  return released;
}

// Maps each and gives access to all at once, which costs what one would. All or nothing.
DeviceResult<void> CudaMemory::map_all(std::span<const Mapping> mappings) {
  const CudaDriver& driver = context_.driver();
  const DeviceAddress start = mappings.front().address;
  std::uint64_t size_bytes = 0;
  DeviceResult<void> done;
  for (const Mapping& mapping : mappings) {
    const auto pages = ledger_.pages(mapping.handle);
    done = !pages ? DeviceResult<void>(Unexpected(pages.error()))
                  : context_.call(driver.cuMemMap,
                                  CUdeviceptr{mapping.address},
                                  mapping.size_bytes,
                                  std::size_t{0},
                                  CUmemGenericAllocationHandle{pages->backing},
                                  0ULL);
    if (!done) break;
    size_bytes += mapping.size_bytes;
  }
  if (done) done = give_access(start, size_bytes);
  if (!done && size_bytes > 0) {
    (void)context_.call(driver.cuMemUnmap, CUdeviceptr{start}, size_bytes);
  }
  return done;
}

// To this GPU, and to the peers.
DeviceResult<void> CudaMemory::give_access(DeviceAddress address, std::uint64_t size_bytes) {
  const auto access_for = [](int index) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = index;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
  };
  const auto set = [&](const CUmemAccessDesc* access, std::size_t count) {
    return context_.call(context_.driver().cuMemSetAccess,
                         CUdeviceptr{address},
                         size_bytes,
                         access,
                         std::size_t{count});
  };
  const CUmemAccessDesc own = access_for(context_.device());
  if (peers_.empty()) [[likely]] {
    return set(&own, 1);
  }
  std::vector<CUmemAccessDesc> all{own};
  for (const int peer : peers_) all.push_back(access_for(peer));
  return set(all.data(), all.size());
}

DeviceResult<int> CudaMemory::export_pages(PageHandle handle) {
  if (!by_processes_) {
    return fail(StatusCode::kNotSupported, "this system shares no memory of the card");
  }
  const std::scoped_lock lock(mutex_);
  const auto pages = ledger_.pages(handle);
  if (!pages) return Unexpected(pages.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  int descriptor = -1;
  const auto exported = context_.call(context_.driver().cuMemExportToShareableHandle,
                                      static_cast<void*>(&descriptor),
                                      CUmemGenericAllocationHandle{pages->backing},
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0ULL);
  if (!exported) return Unexpected(exported.error());
  return descriptor;
}

DeviceResult<PageHandle> CudaMemory::import_pages(int descriptor, std::uint64_t size_bytes) {
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  const CudaDriver& driver = context_.driver();
  CUmemGenericAllocationHandle native = 0;
  // The driver takes the descriptor where a pointer belongs.
  void* const given = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  if (auto made = context_.call(driver.cuMemImportFromShareableHandle,
                                &native,
                                given,
                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      !made) {
    return Unexpected(made.error());
  }
  try {
    const std::scoped_lock lock(mutex_);
    auto handle = ledger_.add_pages(size_bytes, native);
    if (!handle) (void)context_.call(driver.cuMemRelease, native);
    return handle;
  } catch (...) {
    (void)context_.call(driver.cuMemRelease, native);
    throw;
  }
}

DeviceResult<void> CudaMemory::allow_peer(int index) {
  const std::scoped_lock lock(mutex_);
  if (std::ranges::find(peers_, index) != peers_.end()) return {};
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  peers_.push_back(index);
  for (const auto& [address, mapping] : ledger_.mappings()) {
    if (auto given = give_access(address, mapping.size_bytes); !given) {
      peers_.pop_back();
      return given;
    }
  }
  return {};
}

// --- Sharing -------------------------------------------------------------------------------------

template <class T, class Body>
DeviceResult<T> CudaSharing::perform(const char* call, Body&& body) noexcept {
  DeviceStatus status{};
  try {
    if (made_.is_forked()) {
      status.code = StatusCode::kForked;
    } else {
      DeviceResult<T> result = body();
      if (result) return result;
      status = result.error();
    }
  } catch (...) {
    status.code = StatusCode::kOutOfHostMemory;
  }
  status.call = call;
  return Unexpected(status);
}

DeviceResult<int> CudaSharing::export_pages(PageHandle handle) noexcept {
  return perform<int>("export_pages", [&] { return memory_.export_pages(handle); });
}

DeviceResult<PageHandle> CudaSharing::import_pages(int descriptor,
                                                   std::uint64_t size_bytes) noexcept {
  return perform<PageHandle>("import_pages",
                             [&] { return memory_.import_pages(descriptor, size_bytes); });
}

DeviceResult<void> CudaSharing::allow_peer(int index) noexcept {
  return perform<void>("allow_peer", [&] { return memory_.allow_peer(index); });
}

// --- Mapping -------------------------------------------------------------------------------------

DeviceResult<void> CudaMemory::map_pages(DeviceAddress address,
                                         std::span<const PageHandle> handles) {
  const std::scoped_lock lock(mutex_);
  const auto mappings = ledger_.map(address, handles);
  if (!mappings) return Unexpected(mappings.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  const auto mapped = scope ? map_all(*mappings) : DeviceResult<void>(scope.error());
  if (!mapped) {
    std::vector<PageRecord> dead;  // none: no handle was released while the lock was held
    ledger_.unmap(*mappings, dead);
  }
  return mapped;
}

// One call for each run of neighbours. If a later one fails, those before it are unmapped for good:
// the driver refuses none of them but when all is lost.
DeviceResult<std::uint64_t> CudaMemory::unmap_pages(DeviceAddress address,
                                                    std::uint64_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found = ledger_.mappings_in(address, size_bytes);
  if (!found) return Unexpected(found.error());
  std::vector<PageRecord> dead;  // the driver has freed their memory
  dead.reserve(found->size());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  const std::span<const Mapping> mappings(*found);
  for (std::size_t first = 0; first < mappings.size();) {
    std::size_t end = first;
    DeviceAddress stop = mappings[first].address;
    while (end < mappings.size() && mappings[end].address == stop) {
      stop += mappings[end].size_bytes;
      ++end;
    }
    const DeviceAddress start = mappings[first].address;
    const auto unmapped = done_if_shut_down(
        scope ? context_.call(context_.driver().cuMemUnmap, CUdeviceptr{start}, stop - start)
              : DeviceResult<void>(scope.error()));
    if (!unmapped) return Unexpected(unmapped.error());
    ledger_.unmap(mappings.subspan(first, end - first), dead);
    first = end;
  }
  return std::uint64_t{mappings.size()};
}

// --- Pinned memory and questions ---------------------------------------------------------------

DeviceResult<void*> CudaMemory::allocate_pinned(std::uint64_t size_bytes) {
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  void* pointer = nullptr;
  if (auto made = context_.call(context_.driver().cuMemHostAlloc,
                                &pointer,
                                size_bytes,
                                unsigned{CU_MEMHOSTALLOC_PORTABLE});
      !made) {
    return asked_for(made.error(), size_bytes, StatusCode::kOutOfHostMemory);
  }
  try {
    const std::scoped_lock lock(mutex_);
    pinned_.insert(pointer);
  } catch (...) {
    (void)context_.call(context_.driver().cuMemFreeHost, pointer);
    throw;
  }
  return pointer;
}

DeviceResult<void> CudaMemory::free_pinned(void* pointer) {
  {
    const std::scoped_lock lock(mutex_);
    if (!pinned_.contains(pointer)) {
      return fail(StatusCode::kUnknownHandle,
                  "not pinned memory of this device, or freed",
                  reinterpret_cast<std::uintptr_t>(pointer));
    }
    if (is_in_host_task()) late_.pinned.push_back(pointer);
    pinned_.erase(pointer);
    if (is_in_host_task()) return {};
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  const auto freed =
      done_if_shut_down(scope ? context_.call(context_.driver().cuMemFreeHost, pointer)
                              : DeviceResult<void>(scope.error()));
  if (!freed) {
    const std::scoped_lock lock(mutex_);
    pinned_.insert(pointer);
  }
  return freed;
}

DeviceResult<MemoryInfo> CudaMemory::info() {
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  free_late();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  if (auto asked = context_.call(context_.driver().cuMemGetInfo, &free_bytes, &total_bytes);
      !asked) {
    return Unexpected(asked.error());
  }
  return MemoryInfo{.free_bytes = free_bytes, .total_bytes = total_bytes};
}

void CudaMemory::clear() noexcept {
  free_late();
  const std::scoped_lock lock(mutex_);
  const CudaDriver& driver = context_.driver();
  for (const auto& [address, mapping] : ledger_.mappings()) {
    (void)driver.cuMemUnmap(address, mapping.size_bytes);
  }
  for (const auto& [handle, pages] : ledger_.all_pages()) {
    if (!pages.is_released) (void)driver.cuMemRelease(pages.backing);
  }
  for (const auto& [address, size] : ledger_.reservations()) {
    (void)driver.cuMemAddressFree(address, size);
  }
  for (const auto& [address, size] : ledger_.segments()) (void)driver.cuMemFree(address);
  for (void* pointer : pinned_) (void)driver.cuMemFreeHost(pointer);
}

}  // namespace headroom::device::internal
