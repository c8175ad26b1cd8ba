#include "headroom/device/cpu/internal/areas.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

#include "headroom/base/checked.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cpu/internal/bytes.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

std::uint64_t system_page_bytes() noexcept {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

DeviceResult<DeviceAddress> make_area(AreaUse use,
                                      std::uint64_t size_bytes,
                                      std::uint64_t alignment_bytes) {
  CpuProcess& process = cpu_process();
  if (!try_take(process.areas, 1, CpuDevice::kMaxMappings)) {
    return fail(StatusCode::kTooManyMappings,
                "more segments and reservations than the process may have at once",
                process.areas.load() + 1,
                CpuDevice::kMaxMappings);
  }
  const std::uint64_t page = system_page_bytes();
  const std::uint64_t alignment = std::max(alignment_bytes, page);
  const std::uint64_t size = round_up(size_bytes, page);
  const std::uint64_t slack = alignment - page;
  const int protection = use == AreaUse::kMemory ? PROT_READ | PROT_WRITE : PROT_NONE;

  const std::scoped_lock lock(process.mutex);
  void* start = mmap(nullptr, size + slack, protection, kAnonymous, -1, 0);
  if (start == MAP_FAILED) {
    const int error = errno;
    process.areas.fetch_sub(1, std::memory_order_relaxed);
    return fail(use == AreaUse::kMemory ? StatusCode::kOutOfMemory : StatusCode::kOutOfAddressSpace,
                "the system refuses the addresses",
                size_bytes,
                0,
                error);
  }
  // Alignment by asking for too much and handing back both ends.
  const DeviceAddress low = to_address(start);
  const DeviceAddress address = round_up(low, alignment);
  if (address > low) munmap(start, address - low);
  const std::uint64_t behind = low + slack - address;
  if (behind > 0) munmap(to_pointer(address + size), behind);
  madvise(to_pointer(address), size, MADV_DONTFORK);
  return address;
}

void drop_area(AreaUse use, DeviceAddress address, std::uint64_t size_bytes) noexcept {
  const std::uint64_t size = round_up(size_bytes, system_page_bytes());
  // Bare addresses are not poisoned (clear_mappings sees to that), and may be far too many.
  if (use == AreaUse::kMemory) unpoison_bytes(to_pointer(address), size);
  munmap(to_pointer(address), size);
  cpu_process().areas.fetch_sub(1, std::memory_order_relaxed);
}

int clear_mappings(DeviceAddress address, std::uint64_t size_bytes) noexcept {
  unpoison_bytes(to_pointer(address), size_bytes);
  const std::scoped_lock lock(cpu_process().mutex);
  void* at = mmap(to_pointer(address), size_bytes, PROT_NONE, kAnonymous | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) return errno;
  madvise(at, size_bytes, MADV_DONTFORK);
  return 0;
}

}  // namespace headroom::device::internal
