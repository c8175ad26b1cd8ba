// CachingAllocator: PyTorch's caching allocator, decision for decision.
//
// Given the same requests, settings and addresses from the device, every allocation lands where
// PyTorch puts it and every segment is taken and given back when PyTorch does. The version says
// which release is meant where releases differ.
//
//   CachingAllocator allocator(device, {.version = kPyTorch211});
//   allocator.configure("max_split_size_mb:128");
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/config.h"
#include "headroom/memory/core.h"

namespace headroom::memory {

namespace internal {
struct Block;
struct BlockPool;
struct CachingState;
struct ExpandableSegment;
class FreeIndex;
struct FreePosition;
struct PrivatePool;
}  // namespace internal

struct CachingOptions {
  AllocatorConfig config{};
  PyTorchVersion version{};
};

// The addresses of an expandable segment, with the device's handle of each page of equal size;
// kNone where nothing is mapped.
struct ReservationInfo {
  DeviceAddress address = 0;
  std::uint64_t size_bytes = 0;
  StreamId stream = StreamId::kDefault;
  PoolId pool{};
  bool is_small = false;
  std::vector<device::PageHandle> pages{};
};

class CachingAllocator final : public AllocatorCore {
 public:
  // The device outlives the allocator. config.memory_fraction sets the first limit.
  explicit CachingAllocator(device::Device& device, CachingOptions options = {});
  // Gives everything back, blocks that are still held included.
  ~CachingAllocator() override;

  [[nodiscard]] AllocatorConfig config() const;
  [[nodiscard]] PyTorchVersion version() const noexcept;

  using Allocator::configure;
  void configure(const AllocatorConfig& config);

  // Whether the cache alone would serve the request now. Changes nothing.
  [[nodiscard]] bool can_serve_from_cache(std::uint64_t size_bytes, StreamId stream) const;

  // Takes over segments that the device holds already, with their blocks, on an unused allocator
  // (a history that starts in the middle). Blocks that are pending count as allocated. Expandable
  // segments are mapped runs inside one of the reservations; private pools come into being.
  // kInvalidArgument when blocks do not tile their segment, or the mapped pages of a reservation
  // are not those of its segments; then nothing has changed.
  device::DeviceResult<void> restore(std::span<const SegmentInfo> segments,
                                     std::span<const ReservationInfo> reservations = {});

 protected:
  DeviceAddress do_allocate(std::uint64_t size_bytes,
                            StreamId stream,
                            std::optional<AllocationFailure>& failure) override;
  device::DeviceResult<void> do_free(DeviceAddress address) override;
  device::DeviceResult<void> do_record_stream(DeviceAddress address, StreamId stream) override;
  void do_process_events() override;
  std::uint64_t do_empty_cache(PoolId pool) override;
  std::uint64_t do_trim(std::uint64_t keep_bytes) override;
  AllocationResult<std::uint64_t> do_reserve(std::optional<std::uint64_t> size_bytes,
                                             StreamId stream) override;
  void do_configure(const AllocatorChoice& wanted) override;
  void do_begin_allocate_to_pool(PoolId id, StreamFilter filter) override;
  void do_end_allocate_to_pool(PoolId id) override;
  [[nodiscard]] std::optional<std::uint64_t> limit_for_fraction(double fraction) const override;
  [[nodiscard]] AllocatorChoice core_settings() const override;
  [[nodiscard]] std::optional<BlockInfo> find_block_locked(DeviceAddress address) const override;
  [[nodiscard]] std::optional<BlockPlace> locate_locked(DeviceAddress address) const override;
  [[nodiscard]] internal::PoolUse* find_pool(PoolId id) const noexcept override;
  void make_pool(PoolId id) override;
  [[nodiscard]] CoreAccount core_account(StreamId stream) const override;
  [[nodiscard]] std::vector<LiveBlock> live_blocks() const override;
  [[nodiscard]] std::vector<SegmentInfo> segments_locked() const override;
  [[nodiscard]] std::uint64_t core_fingerprint() const override;
  [[nodiscard]] std::optional<std::string> check_core_invariants() const override;

 private:
  using Block = internal::Block;
  using BlockPool = internal::BlockPool;
  using ExpandableSegment = internal::ExpandableSegment;

  // One malloc on its way.
  struct Request {
    std::uint64_t asked = 0;
    std::uint64_t rounded = 0;
    std::uint64_t segment = 0;  // what a new segment would take
    StreamId stream = StreamId::kDefault;
    BlockPool* pool = nullptr;
    internal::FreeIndex* index = nullptr;  // the pool's free blocks of the stream
  };
  enum class Growth : std::uint8_t { kDone, kNoRoom, kRejected, kDeviceFailed };
  struct Grown {
    Growth outcome = Growth::kNoRoom;
    Block* block = nullptr;
    device::DeviceStatus status{};
  };

  // All of these require mutex_. The malloc path, in caching/allocate.cpp:
  void prepare();
  [[nodiscard]] internal::PrivatePool* private_pool_for(StreamId stream,
                                                        std::unique_lock<Mutex>& lock) const;
  [[nodiscard]] Request make_request(std::uint64_t size_bytes,
                                     StreamId stream,
                                     internal::PrivatePool* pool);
  [[nodiscard]] BlockPool& route(std::uint64_t rounded, internal::PrivatePool* pool) const;
  [[nodiscard]] internal::FreePosition search(const Request& request, bool is_expandable) const;
  [[nodiscard]] internal::FreePosition find_free_block(const Request& request);
  [[nodiscard]] Grown allocate_slowly(std::unique_lock<Mutex>& lock, const Request& request);
  [[nodiscard]] Block* take_from_failure_pools(const Request& request);
  [[nodiscard]] Grown grow(std::unique_lock<Mutex>& lock, const Request& request, bool is_retry);
  [[nodiscard]] Grown take_segment(std::unique_lock<Mutex>& lock,
                                   std::uint64_t size_bytes,
                                   StreamId stream,
                                   BlockPool& pool);
  [[nodiscard]] bool should_split(const Block& block, std::uint64_t rounded) const;
  [[nodiscard]] Block& hand_out_cached(const Request& request, internal::FreePosition at);
  [[nodiscard]] Block& hand_out_grown(const Request& request, Block& block);
  [[nodiscard]] Block& hand_out(const Request& request, Block& block);
  [[nodiscard]] Block& split(Block& block, std::uint64_t rounded);

  // Free and release, in caching/release.cpp:
  void insert_free(Block& block);
  void complete_free(Block& block);
  [[nodiscard]] static bool can_merge(const Block& block, const Block* neighbour) noexcept;
  std::uint64_t absorb(Block& block, Block& neighbour);
  void merge_neighbours(Block& block);
  void process_pending();
  void wait_for_pending();
  bool wait_for_stream(StreamId stream) noexcept;
  bool release_segment(Block& block);
  void release_pool_blocks(BlockPool& pool);
  void release_cached();
  void release_private_pools(std::optional<PoolId> only = std::nullopt);
  std::uint64_t release_everything();
  [[nodiscard]] bool release_available(const Request& request);
  void collect_garbage();
  void retry_strays();

  // Expandable segments, in caching/expandable.cpp:
  [[nodiscard]] bool uses_expandable(const BlockPool& pool) const noexcept;
  [[nodiscard]] Grown grow_expandable(const Request& request);
  [[nodiscard]] Grown find_room(const Request& request);
  [[nodiscard]] device::DeviceResult<void> map_block(Block& block, std::uint64_t size_bytes);
  [[nodiscard]] device::DeviceResult<void> map_pages(ExpandableSegment& segment,
                                                     std::size_t first,
                                                     std::size_t last);
  void unmap_block(Block& block);
  void release_expandable(Block& block);
  void release_empty_segments();

  [[nodiscard]] device::DeviceResult<std::uint64_t> bytes_to_reserve(
      std::optional<std::uint64_t> size_bytes, std::uint64_t step) const;
  [[nodiscard]] bool acts_as_capturing() const noexcept;
  [[nodiscard]] bool is_pool_in_use(const internal::PrivatePool& pool) const;
  // Restoring, in caching/restore.cpp:
  [[nodiscard]] device::DeviceResult<void> check_restore(
      std::span<const SegmentInfo> segments, std::span<const ReservationInfo> reservations) const;
  [[nodiscard]] BlockPool& pool_to_restore(PoolId id, bool is_small);
  void restore_segment(const SegmentInfo& segment);
  void restore_reservation(const ReservationInfo& reservation,
                           std::span<const SegmentInfo> segments);
  Block& restore_block(const BlockInfo& info, const Block& like, Block* prev);
  [[nodiscard]] static BlockRecord record_of(const Block& block) noexcept;
  template <class Function>
  void for_each_pool(Function&& function) const;
  template <class Function>
  void for_each_block(Function&& function) const;

  std::unique_ptr<internal::CachingState> state_;
};

}  // namespace headroom::memory
