// SlabAllocator: the least core around a SlabHeap. Small blocks come from one segment of the
// device, larger ones from nowhere; what another stream uses stays pending until process_events().
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/device/device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/core.h"
#include "headroom/memory/internal/records.h"
#include "headroom/memory/internal/slab_cached.h"
#include "headroom/memory/internal/slab_heap.h"
#include "headroom/memory/internal/slab_walk.h"

namespace headroom::memory::testing {

class SlabAllocator final : public AllocatorCore, private internal::SlabPages {
 public:
  explicit SlabAllocator(device::Device& device, std::size_t max_pages = 64)
      : AllocatorCore(device),
        segment_(device.allocate_segment((max_pages + 1) * internal::kSlabPageBytes).value()),
        heap_(device, mutex_, *this) {
    const DeviceAddress base = round_up(segment_, internal::kSlabPageBytes);
    heap_.set_region(base, max_pages * internal::kSlabPageBytes);
    for (std::size_t i = max_pages; i > 0; --i) {
      free_pages_.push_back(base + (i - 1) * internal::kSlabPageBytes);
    }
  }
  ~SlabAllocator() override {
    heap_.close();
    (void)device_.free_segment(segment_);
  }

  // Not under its lock: for one thread, or threads at rest.
  [[nodiscard]] internal::SlabHeap& heap() noexcept { return heap_; }
  [[nodiscard]] std::size_t pages_left() const noexcept { return free_pages_.size(); }
  std::uint64_t flush() {
    const std::lock_guard lock(mutex_);
    heap_.fold_own();
    return heap_.flush();
  }
  void enable_magazines(bool is_enabled) {
    const std::lock_guard lock(mutex_);
    heap_.enable_magazines(is_enabled);
  }

 protected:
  DeviceAddress do_allocate(std::uint64_t size_bytes,
                            StreamId stream,
                            std::optional<AllocationFailure>& failure) override {
    const AllocationContext context = current_context();
    const bool is_slab = size_bytes <= internal::kSlabMaxBytes;
    if (is_slab) {
      const DeviceAddress cached = heap_.allocate_cached(size_bytes, stream, context);
      if (cached != 0) return cached;
    }
    std::unique_lock lock(mutex_);
    heap_.fold_own();
    const BlockRecord block{
        .address = is_slab ? heap_.allocate(size_bytes, stream, context) : take_large(size_bytes),
        .size_bytes = is_slab ? internal::SlabHeap::block_bytes(size_bytes)
                              : round_up(size_bytes, kMinBlockBytes),
        .requested_bytes = size_bytes,
        .stream = stream,
        .is_small = size_bytes <= kSmallBytes,
        .context = context};
    if (block.address == 0) {
      failure = fail(lock, {.asked_bytes = size_bytes, .rounded_bytes = block.size_bytes});
      return 0;
    }
    if (!is_slab) large_.emplace(block.address, block);
    record_alloc(block);
    return block.address;
  }

  device::DeviceResult<void> do_free(DeviceAddress address) override {
    using Freed = internal::SlabHeap::Freed;
    const Freed freed = heap_.free_cached(address);
    if (freed == Freed::kDone) return {};
    if (freed == Freed::kElsewhere) return free_large(address);
    if (freed == Freed::kUnknown) return not_held();
    const std::lock_guard lock(mutex_);
    heap_.fold_own();
    const bool has_begun = freed == Freed::kBegun;
    if (!has_begun && uses_.erase(address) != 0) {
      const auto block = heap_.mark_pending(address);
      if (!block) return not_held();
      pending_.push_back(address);
      record_free_requested(record_of(*block));
      return {};
    }
    const auto block = has_begun ? heap_.finish_free(address) : heap_.free(address);
    if (!block) return not_held();
    record_free_requested(record_of(*block));
    record_free_completed(record_of(*block));
    return {};
  }

  device::DeviceResult<void> do_record_stream(DeviceAddress address, StreamId stream) override {
    const std::lock_guard lock(mutex_);
    if (!heap_.mark_used_elsewhere(address)) return not_held();
    uses_[address].push_back(stream);
    return {};
  }
  void do_process_events() override {
    const std::lock_guard lock(mutex_);
    heap_.fold_own();
    for (const DeviceAddress address : std::exchange(pending_, {})) {
      record_free_completed(record_of(heap_.complete(address).value()));
    }
  }
  std::uint64_t do_empty_cache(PoolId /*pool*/) override { return flush(); }
  std::uint64_t do_trim(std::uint64_t /*keep_bytes*/) override { return flush(); }
  AllocationResult<std::uint64_t> do_reserve(std::optional<std::uint64_t> /*size_bytes*/,
                                             StreamId /*stream*/) override {
    return std::uint64_t{0};
  }
  void do_configure(const AllocatorChoice& /*wanted*/) override {}
  [[nodiscard]] AllocatorChoice core_settings() const override { return {}; }
  void do_begin_allocate_to_pool(PoolId /*id*/, StreamFilter /*filter*/) override {}
  void do_end_allocate_to_pool(PoolId /*id*/) override {}

  [[nodiscard]] std::optional<BlockInfo> find_block_locked(DeviceAddress address) const override {
    const auto block = heap_.find(address);
    if (!block || block->is_pending) return std::nullopt;
    return BlockInfo{.address = address,
                     .size_bytes = block->size_bytes,
                     .requested_bytes = block->requested_bytes,
                     .state = BlockState::kAllocated,
                     .category = block->context.category,
                     .annotation = block->context.annotation};
  }
  [[nodiscard]] std::optional<BlockPlace> locate_locked(DeviceAddress /*address*/) const override {
    return std::nullopt;
  }
  [[nodiscard]] internal::PoolUse* find_pool(PoolId /*id*/) const noexcept override {
    return nullptr;
  }
  void make_pool(PoolId /*id*/) override {}
  [[nodiscard]] CoreAccount core_account(StreamId /*stream*/) const override {
    return {.cached_soft_bytes = heap_.page_bytes() - heap_.live_bytes()};
  }
  [[nodiscard]] std::vector<LiveBlock> live_blocks() const override {
    std::vector<LiveBlock> blocks;
    heap_.for_each_block([&](const internal::SlabBlock& block) {
      if (!block.is_pending) {
        blocks.push_back({block.requested_bytes, block.size_bytes, block.context});
      }
    });
    for (const auto& [address, block] : large_) {
      blocks.push_back({block.requested_bytes, block.size_bytes, block.context});
    }
    return blocks;
  }
  [[nodiscard]] std::vector<SegmentInfo> segments_locked() const override {
    return heap_.segments();
  }
  [[nodiscard]] std::uint64_t core_fingerprint() const override { return 0; }
  [[nodiscard]] std::optional<std::string> check_core_invariants() const override {
    if (auto problem = heap_.check()) return problem;
    std::int64_t live = static_cast<std::int64_t>(heap_.live_bytes());
    for (const auto& [address, block] : large_) live += static_cast<std::int64_t>(block.size_bytes);
    if (live != stats_.active_bytes.all.current) return "active is not the sum of its blocks";
    return std::nullopt;
  }

  void fold_threads() const noexcept override { heap_.fold_all(); }
  void pause_threads() const noexcept override { heap_.pause_threads(); }
  void resume_threads() const noexcept override { heap_.resume_threads(); }
  void sinks_changed() noexcept override { heap_.require_lock(tells_of_blocks()); }

 private:
  static constexpr DeviceAddress kLargeBase = DeviceAddress{1} << 60U;

  DeviceAddress take_slab_page(StreamId stream) noexcept override {
    if (free_pages_.empty() || !limit_allows(internal::kSlabPageBytes)) return 0;
    const DeviceAddress page = free_pages_.back();
    free_pages_.pop_back();
    record_segment(Action::kSegmentAlloc, segment_record(page, internal::kSlabPageBytes, stream));
    return page;
  }
  void give_slab_page(DeviceAddress page) noexcept override {
    free_pages_.push_back(page);
    record_segment(Action::kSegmentFree,
                   segment_record(page, internal::kSlabPageBytes, StreamId::kDefault));
  }
  void fold_tally(const internal::ThreadTally& tally) noexcept override { record_threads(tally); }

  static SegmentRecord segment_record(DeviceAddress address, std::uint64_t size, StreamId stream) {
    return {.address = address, .size_bytes = size, .stream = stream, .is_small = true};
  }
  static BlockRecord record_of(const internal::SlabBlock& block) noexcept {
    return {.address = block.address,
            .size_bytes = block.size_bytes,
            .requested_bytes = block.requested_bytes,
            .stream = block.stream,
            .is_small = true,
            .context = block.context};
  }
  static Unexpected<device::DeviceStatus> not_held() {
    return Unexpected(
        device::DeviceStatus{.code = device::StatusCode::kInvalidArgument, .call = "free"});
  }
  DeviceAddress take_large(std::uint64_t size_bytes) {
    record_segment(Action::kSegmentAlloc,
                   segment_record(next_large_, round_up(size_bytes, kMinBlockBytes), {}));
    return std::exchange(next_large_, next_large_ + round_up(size_bytes, kMinBlockBytes));
  }
  device::DeviceResult<void> free_large(DeviceAddress address) {
    const std::lock_guard lock(mutex_);
    heap_.fold_own();
    const auto found = large_.find(address);
    if (found == large_.end()) return not_held();
    record_free_requested(found->second);
    record_free_completed(found->second);
    record_segment(Action::kSegmentFree, segment_record(address, found->second.size_bytes, {}));
    large_.erase(found);
    return {};
  }

  DeviceAddress segment_;
  std::vector<DeviceAddress> free_pages_{};
  std::map<DeviceAddress, BlockRecord> large_{};
  DeviceAddress next_large_ = kLargeBase;
  std::map<DeviceAddress, std::vector<StreamId>> uses_{};
  std::vector<DeviceAddress> pending_{};
  mutable internal::SlabHeap heap_;
};

}  // namespace headroom::memory::testing
