// CudaMemory: segments, addresses, pages, mappings and pinned memory of one GPU.
//
// The ledger knows what exists and refuses what can never work, as on every backend; the driver
// has the last word on whether there is room. The ledger's lock is held around the driver's calls
// on mappings and handles, which wait for nobody, and never around those that may wait for queued
// work.
#pragma once

#include <atomic>
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
#include "headroom/device/page_sharing.h"

namespace headroom::device::internal {

// Who else may be given access to pages.
struct PageReaders {
  bool by_network = false;
  bool by_processes = false;
};

class CudaMemory {
 public:
  CudaMemory(CudaContext& context, LedgerLimits limits, PageReaders readers);
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

  // See PageSharing.
  DeviceResult<int> export_pages(PageHandle handle);
  DeviceResult<PageHandle> import_pages(int descriptor, std::uint64_t size_bytes);
  DeviceResult<void> allow_peer(int index);

  DeviceResult<void*> allocate_pinned(std::uint64_t size_bytes);
  DeviceResult<void> free_pinned(void* pointer);

  DeviceResult<MemoryInfo> info();

  // Gives everything back. Nothing queued uses it any more; the context is current.
  void clear() noexcept;

 private:
  // Memory that a host task freed. The driver's calls for it wait for all queued work, the task
  // itself included, so they are made later, outside of any task.
  struct Late {
    std::vector<DeviceAddress> segments;
    std::vector<void*> pinned;
  };

  void free_late() noexcept;
  DeviceResult<void> map_all(std::span<const Mapping> mappings);
  DeviceResult<void> give_access(DeviceAddress address, std::uint64_t size_bytes);

  CudaContext& context_;
  const bool by_network_;
  std::atomic<bool> by_processes_;  // until the driver refuses pages that can be shared
  mutable std::mutex mutex_;        // guards all below
  Ledger ledger_;
  std::vector<int> peers_;  // other GPUs that may use what is mapped here
  std::unordered_set<void*> pinned_;
  Late late_;
};

// The device's side of it for others.
class CudaSharing final : public PageSharing {
 public:
  explicit CudaSharing(CudaMemory& memory) noexcept : memory_(memory) {}

  DeviceResult<int> export_pages(PageHandle handle) noexcept override;
  DeviceResult<PageHandle> import_pages(int descriptor, std::uint64_t size_bytes) noexcept override;
  DeviceResult<void> allow_peer(int index) noexcept override;

 private:
  template <class T, class Body>
  DeviceResult<T> perform(const char* call, Body&& body) noexcept;

  CudaMemory& memory_;
  ForkMark made_{};
};

}  // namespace headroom::device::internal
