// PagedAllocator: our own. Reserved stays within a few percent of what is live, whatever the
// traffic.
//
// Addresses are cheap, physical pages are not. Every stream has arenas: long ranges of addresses in
// which blocks are placed by best fit, wherever pages are mapped. When no mapped hole is large
// enough, a window of addresses is chosen that lacks the fewest pages, and pages that lie in free
// holes elsewhere are mapped there a second time; nothing waits, because the old mapping may stay
// until nobody uses it. New pages are created only while reserved is within a cushion of the most
// that was ever live. See docs/design/2026-11-15-paged-allocator.md.
//
//   PagedAllocator allocator(device);
//   DeviceAddress block = allocator.allocate(3_GiB);
//   allocator.bound();      // reserved <= live pages + slab residue + cushion, term by term
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/memory/allocator.h"

namespace headroom::memory {

namespace internal {
struct Block;
struct PageArena;
struct PagedPool;
struct PagedState;
}  // namespace internal

// After `after` without an allocation that needed the device, keep at most `keep_bytes` cached.
struct IdlePolicy {
  std::chrono::milliseconds after{5000};
  std::uint64_t keep_bytes = 2_GiB;
};

// Sizes are rounded up to the device's granularity.
struct PagedOptions {
  std::uint64_t page_bytes = 4_MiB;         // physical handles behind blocks, ...
  std::uint64_t large_page_bytes = 20_MiB;  // ... and behind blocks of at least
  std::uint64_t large_from_bytes = 256_MiB;
  // New pages are created freely while reserved is at most the peak of live bytes, times one plus
  // the fraction, plus the bytes; past that, free pages are moved first.
  double cushion_fraction = 0.02;
  std::uint64_t cushion_bytes = 4_MiB;
  bool uses_magazines = true;  // the per-thread caches of small blocks
  std::optional<IdlePolicy> idle{};
};

// reserved <= live_pages + slab_residue + cushion. Each term is counted, none is derived from
// another.
struct PagedBound {
  std::uint64_t reserved_bytes = 0;
  std::uint64_t live_pages_bytes = 0;    // pages that hold a byte of a block somebody holds
  std::uint64_t slab_residue_bytes = 0;  // slab pages, less the blocks held in them
  std::uint64_t cushion_bytes = 0;       // what may be cached beyond that

  [[nodiscard]] bool holds() const noexcept {
    return reserved_bytes <= live_pages_bytes + slab_residue_bytes + cushion_bytes;
  }
};

class PagedAllocator final : public Allocator {
 public:
  // The device outlives the allocator and has virtual memory. Throws InvalidArgument for sizes
  // that make no sense and for a device without virtual memory.
  explicit PagedAllocator(device::Device& device, PagedOptions options = {});
  // Gives everything back, blocks that are still held included.
  ~PagedAllocator() override;

  [[nodiscard]] std::string_view policy() const noexcept override { return "paged"; }
  [[nodiscard]] const PagedOptions& options() const noexcept;
  [[nodiscard]] PagedBound bound() const;

  // A graph capture is under way on this device: nothing is queried, unmapped or moved.
  void begin_capture();
  void end_capture();

 protected:
  DeviceAddress do_allocate(std::uint64_t size_bytes,
                            StreamId stream,
                            std::optional<AllocationFailure>& failure) override;
  device::DeviceResult<void> do_free(DeviceAddress address) override;
  device::DeviceResult<void> do_record_stream(DeviceAddress address, StreamId stream) override;
  void do_process_events() override;
  std::uint64_t do_empty_cache() override;
  std::uint64_t do_trim(std::uint64_t keep_bytes) override;
  AllocationResult<std::uint64_t> do_reserve(std::optional<std::uint64_t> size_bytes,
                                             StreamId stream) override;
  void do_begin_allocate_to_pool(PoolId id, StreamFilter filter) override;
  void do_end_allocate_to_pool(PoolId id) override;
  void do_release_pool(PoolId id) override;
  [[nodiscard]] std::string pytorch_text(const Account& account,
                                         const CoreAccount& core,
                                         const FailedRequest& request) const override;
  [[nodiscard]] std::optional<BlockInfo> find_block_locked(DeviceAddress address) const override;
  [[nodiscard]] CoreAccount core_account(StreamId stream) const override;
  [[nodiscard]] std::vector<LiveBlock> live_blocks() const override;
  [[nodiscard]] std::vector<SegmentInfo> segments_locked() const override;
  [[nodiscard]] std::optional<std::string> check_core_invariants() const override;

 private:
  std::unique_ptr<internal::PagedState> state_;
};

}  // namespace headroom::memory
