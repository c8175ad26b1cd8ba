// CpuMemory: a cpu device's segments, reservations, page handles and mappings: the ledger with the
// system calls around it.
//
// Thread-safe. Every call does all it says or nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "headroom/device/cpu/internal/memory_file.h"
#include "headroom/device/internal/ledger.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

class StreamTable;

// The object of a call, to price it.
struct Extent {
  std::uint64_t size_bytes = 0;
  std::uint64_t handles = 1;
};

class CpuMemory {
 public:
  // Throws Error when the system refuses.
  CpuMemory(int device_index, LedgerLimits limits) : ledger_(limits), file_(device_index) {}
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  ~CpuMemory();

  [[nodiscard]] DeviceResult<DeviceAddress> allocate_segment(std::uint64_t size_bytes);
  // Does not wait: work that `streams` have queued may still use the segment, and the last of them
  // to pass gives the memory back to the system.
  [[nodiscard]] DeviceResult<Extent> free_segment(DeviceAddress address, StreamTable& streams);

  [[nodiscard]] DeviceResult<DeviceAddress> reserve_addresses(std::uint64_t size_bytes);
  [[nodiscard]] DeviceResult<void> release_addresses(DeviceAddress address);

  [[nodiscard]] DeviceResult<PageHandle> create_pages(std::uint64_t size_bytes);
  [[nodiscard]] DeviceResult<Extent> release_pages(PageHandle handle);

  [[nodiscard]] DeviceResult<Extent> map_pages(DeviceAddress address,
                                               std::span<const PageHandle> handles);
  [[nodiscard]] DeviceResult<Extent> unmap_pages(DeviceAddress address, std::uint64_t size_bytes);

  [[nodiscard]] bool owns_range(DeviceAddress address, std::uint64_t size_bytes) const noexcept;
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;

 private:
  // All require mutex_.
  [[nodiscard]] int map_each(std::span<const Mapping> mappings) noexcept;
  [[nodiscard]] int clear_each(std::span<const Mapping> mappings) noexcept;
  void forget(std::span<const Mapping> mappings, std::vector<PageRecord>& dead) noexcept;
  void give_back(const PageRecord& record) noexcept;
  void validate() const;

  mutable std::mutex mutex_;
  Ledger ledger_;
  MemoryFile file_;
};

}  // namespace headroom::device::internal
