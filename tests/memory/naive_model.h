// NaiveModel: PyTorch's decisions once more, written for being read rather than for speed.
//
// Segments are vectors of blocks, every search is a walk over all of them, and nothing is shared
// with the allocator but its value types. It holds no memory: the caller says where the driver
// would put the next segment and the next reservation. A fuzz test runs it beside CachingAllocator
// and compares every answer, every event and every statistic.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/memory/config.h"
#include "headroom/memory/event.h"
#include "headroom/memory/types.h"

namespace headroom::memory::testing {

inline std::uint64_t up_to_multiple(std::uint64_t n, std::uint64_t step) {
  return (n + step - 1) / step * step;
}

inline std::int64_t negative(std::uint64_t n) { return -static_cast<std::int64_t>(n); }
inline std::int64_t positive(std::uint64_t n) { return static_cast<std::int64_t>(n); }

// One quantity of the model's own statistics: current, peak and what came and went.
struct ModelStat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t came = 0;
  std::int64_t went = 0;

  void move(std::int64_t by) {
    current += by;
    (by > 0 ? came : went) += by > 0 ? by : -by;
    if (current > peak) peak = current;
  }
  friend bool operator==(const ModelStat&, const ModelStat&) = default;
};

// The small pool's and the large pool's share.
struct ModelStats {
  using Pair = std::array<ModelStat, 2>;  // [is_small]
  Pair allocation, segment, active, inactive_split;
  Pair allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  ModelStat oversize_allocations, oversize_segments;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_oom_rejections = 0;
};

enum class ModelOutcome : std::uint8_t { kDone, kOutOfMemory, kRejected, kTooLarge };

struct ModelAnswer {
  ModelOutcome outcome = ModelOutcome::kDone;
  DeviceAddress address = 0;
};

class NaiveModel {
 public:
  NaiveModel(std::uint64_t capacity_bytes, PyTorchVersion version)
      : capacity_(capacity_bytes), version_(version) {}

  // Where the driver puts the next segment and the next reservation.
  void place(DeviceAddress segment, DeviceAddress reservation) {
    next_segment_at_ = segment;
    next_reservation_at_ = reservation;
  }

  ModelAnswer allocate(std::uint64_t size, StreamId stream);
  // Whether the block is held.
  bool free(DeviceAddress address);
  bool record_stream(DeviceAddress address, StreamId stream);
  void complete_events(StreamId stream);
  void process_events();
  std::uint64_t empty_cache();
  std::uint64_t trim(std::uint64_t keep_bytes);
  void set_limit(std::optional<std::uint64_t> limit) { limit_ = limit; }
  void configure(const AllocatorConfig& config) { config_ = config; }
  // Whether it was possible.
  bool begin_pool(PoolId id, std::vector<StreamId> streams);
  bool end_pool(PoolId id);
  bool release_pool(PoolId id);
  void begin_capture() { ++captures_; }
  bool end_capture();

  [[nodiscard]] const ModelStats& stats() const { return stats_; }
  [[nodiscard]] std::vector<Event> take_events() { return std::exchange(events_, {}); }
  // What a snapshot would show, by address.
  [[nodiscard]] std::vector<SegmentInfo> segments() const;
  // Everything the driver has given, as ranges: begin and end.
  [[nodiscard]] std::vector<std::pair<DeviceAddress, DeviceAddress>> ranges() const;
  [[nodiscard]] bool is_held(DeviceAddress address) const;
  // Its last user has left; whether the pool still exists is the allocator's own business.
  [[nodiscard]] bool is_released(PoolId id) const;
  [[nodiscard]] std::uint64_t free_bytes() const { return capacity_ - used_bytes(); }
  [[nodiscard]] std::uint64_t reservation_bytes(bool is_small) const;

 private:
  struct Block {
    DeviceAddress address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested = 0;
    bool is_allocated = false;
    bool is_mapped = true;
    std::vector<StreamId> uses{};  // other streams that were recorded
    int events = 0;                // recorded for them at the free
    std::uint64_t freed_at = 0;    // the pool's clock

    [[nodiscard]] bool is_free() const { return !is_allocated && uses.empty() && events == 0; }
  };
  struct Segment {
    std::uint64_t serial = 0;
    StreamId stream{};
    PoolId pool{};
    bool is_small = false;
    std::uint64_t page = 0;  // 0 when it is not expandable
    std::vector<Block> blocks{};

    [[nodiscard]] DeviceAddress begin() const { return blocks.front().address; }
    [[nodiscard]] DeviceAddress end() const { return blocks.back().address + blocks.back().size; }
  };
  // A block by segment and place; any change of the segments ends its meaning.
  struct Place {
    std::size_t segment = 0;
    std::size_t block = 0;
  };
  struct Pool {
    PoolId id{};
    bool is_small = false;
  };
  struct PrivatePool {
    PoolId id{};
    int users = 1;
  };
  struct Scope {
    PoolId id{};
    std::vector<StreamId> streams{};
  };
  struct Pending {
    std::uint64_t position = 0;  // of the event on its stream
    DeviceAddress address = 0;
  };
  struct Queue {
    std::uint64_t recorded = 0;
    std::uint64_t completed = 0;
    std::vector<Pending> pending{};
  };
  struct Request {
    std::uint64_t asked = 0;
    std::uint64_t rounded = 0;
    std::uint64_t segment = 0;
    StreamId stream{};
    Pool pool{};
  };

  [[nodiscard]] std::uint64_t round(std::uint64_t size) const;
  [[nodiscard]] std::uint64_t segment_for(std::uint64_t rounded) const;
  [[nodiscard]] Pool route(std::uint64_t rounded, StreamId stream) const;
  [[nodiscard]] bool is_capturing() const;
  [[nodiscard]] std::uint64_t& clock(const Pool& pool);
  [[nodiscard]] std::int64_t reserved() const;
  [[nodiscard]] std::uint64_t used_bytes() const { return static_cast<std::uint64_t>(reserved()); }

  [[nodiscard]] Block& at(Place place) { return segments_[place.segment].blocks[place.block]; }
  [[nodiscard]] Segment& segment_of(Place place) { return segments_[place.segment]; }
  [[nodiscard]] bool is_split(Place place) { return segment_of(place).blocks.size() > 1; }
  [[nodiscard]] std::optional<Place> find(DeviceAddress address);
  // Free mapped blocks of the pool in PyTorch's order, of one stream or of all.
  [[nodiscard]] std::vector<Place> free_blocks(const Pool& pool, std::optional<StreamId> stream);
  [[nodiscard]] std::uint64_t size_with_growth(Place place);

  [[nodiscard]] std::optional<Place> search(const Request& request);
  [[nodiscard]] std::optional<Place> grow(const Request& request, bool is_retry, bool* is_rejected);
  [[nodiscard]] std::optional<Place> grow_expandable(const Request& request);
  [[nodiscard]] bool map(Place* place, std::uint64_t bytes);
  DeviceAddress hand_out(const Request& request, Place place);

  void complete_free(DeviceAddress address);
  // Merges the block with equal neighbours; the block's new place and what was absorbed.
  Place merge(Place place, int* count, std::uint64_t* bytes);
  void record_events(DeviceAddress address);
  void settle_deferred();
  void finish(const Pending& entry);
  void wait_for_all();

  void release_segment(DeviceAddress address);
  void unmap(DeviceAddress address);
  void release_pool_blocks(const Pool& pool);
  void release_all();
  [[nodiscard]] bool release_available(const Request& request);
  void collect_garbage();
  void emit(Action action, DeviceAddress address, std::uint64_t size, const Segment& segment);

  const std::uint64_t capacity_;
  const PyTorchVersion version_;
  AllocatorConfig config_{};
  std::optional<std::uint64_t> limit_{};
  DeviceAddress next_segment_at_ = 0;
  DeviceAddress next_reservation_at_ = 0;
  std::uint64_t next_serial_ = 0;
  std::vector<Segment> segments_;
  std::vector<PrivatePool> private_pools_;
  std::vector<Scope> scopes_;
  int captures_ = 0;
  std::map<std::pair<PoolId, bool>, std::uint64_t> clocks_;
  std::map<StreamId, Queue> queues_;
  std::vector<DeviceAddress> deferred_;
  std::vector<Event> events_;
  ModelStats stats_{};
};

}  // namespace headroom::memory::testing
