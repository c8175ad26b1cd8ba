// CudaMemory: segments, addresses, pages, mappings and pinned memory of one GPU.
//
// The ledger knows what exists and refuses what can never work, as on every backend; the driver
// has the last word on whether there is room. The ledger's lock is held around the driver's calls
// on mappings and handles, which wait for nobody, and never around those that may wait for queued
// work.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "headroom/device/cuda/internal/context.h"
#include "headroom/device/device.h"
#include "headroom/device/internal/ledger.h"

namespace headroom::device::internal {

class CudaMemory {
 public:
  CudaMemory(CudaContext& context, LedgerLimits limits, bool can_be_read_by_network);
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  [[nodiscard]] bool owns_range(DeviceAddress address, std::uint64_t size_bytes) const noexcept;
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;
  [[nodiscard]] std::optional<std::string> check_invariants() const;

  DeviceResult<DeviceAddress> allocate_segment(std::uint64_t size_bytes);
  DeviceResult<void> free_segment(DeviceAddress address);

  DeviceResult<DeviceAddress> reserve_addresses(std::uint64_t size_bytes);
  DeviceResult<void> release_addresses(DeviceAddress address);
  DeviceResult<PageHandle> create_pages(std::uint64_t size_bytes, PageOptions options);
  DeviceResult<void> release_pages(PageHandle handle);
  DeviceResult<void> map_pages(DeviceAddress address, std::span<const PageHandle> handles);
  DeviceResult<std::uint64_t> unmap_pages(DeviceAddress address, std::uint64_t size_bytes);

  DeviceResult<void*> allocate_pinned(std::uint64_t size_bytes);
  DeviceResult<void> free_pinned(void* pointer);

  DeviceResult<MemoryInfo> info();

  // Gives everything back. Nothing queued uses it any more; the context is current.
  void clear() noexcept;

 private:
  // What a host task freed. The driver's calls for it wait for all queued work, the task itself
  // included, so they are made later, outside of any task.
  struct Late {
    std::vector<DeviceAddress> segments;
    std::vector<void*> pinned;
  };

  void free_late() noexcept;
  DeviceResult<void> map_all(std::span<const Mapping> mappings);

  CudaContext& context_;
  const bool can_be_read_by_network_;
  mutable std::mutex mutex_;  // guards all below
  Ledger ledger_;
  std::unordered_set<void*> pinned_;
  Late late_;
};

}  // namespace headroom::device::internal
