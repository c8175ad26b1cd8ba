// An allocator over addresses without memory, driven by slots: what replay() and verify() share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/device/call_costs.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/paged/paged_allocator.h"
#include "headroom/replay/player.h"
#include "headroom/replay/program.h"

namespace headroom::replay::internal {

// Counts what the allocator takes and gives back, prices what the driver is asked for, and
// remembers when most was reserved. Memory that moves between addresses is counted by its handles:
// its segment events say where it is seen, not that it came or went.
class SegmentWatch final : public memory::EventSink, public device::CallWatch {
 public:
  SegmentWatch(std::size_t half_op, bool counts_handles)
      : half_op_(half_op), counts_handles_(counts_handles) {}

  void record(const memory::Event& event) noexcept override;
  void device_called(device::Call call, std::uint64_t size_bytes) noexcept override;

  std::size_t op = 0;  // set by the machine's driver
  bool keeps_events = false;
  std::vector<memory::Event> events{};  // since somebody took them; verification's
  std::uint64_t reserved = 0;
  std::uint64_t peak_reserved = 0;
  std::size_t peak_op = 0;
  DriverCalls calls{};
  double second_half_us = 0;

 private:
  void take(std::uint64_t size_bytes) noexcept;
  void give_back(std::uint64_t size_bytes) noexcept;

  device::CallCosts costs_ = device::h200_call_costs();
  std::size_t half_op_;
  bool counts_handles_;
};

class Machine {
 public:
  // With the program's start state.
  Machine(const Program& program, const ReplayOptions& options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  [[nodiscard]] memory::Allocator& allocator() noexcept { return *allocator_; }
  // Where the options name no other.
  [[nodiscard]] memory::CachingAllocator& caching() noexcept { return *caching_; }
  [[nodiscard]] device::MetaDevice& device() noexcept { return *device_; }
  [[nodiscard]] SegmentWatch& watch() noexcept { return watch_; }

  // Ops [first, last). False when it stopped at a failure.
  bool run(std::size_t first, std::size_t last);

  // The ops one by one, for verification.
  [[nodiscard]] DeviceAddress try_allocate(const Op& op);
  // The last one failed because a place that was set for the device is taken.
  [[nodiscard]] bool was_refused_place() const noexcept { return was_refused_place_; }
  void free(std::uint32_t slot);
  void free_held(std::uint32_t slot, std::uint64_t hold);
  void complete(std::uint64_t hold);
  void empty_cache();
  [[nodiscard]] DeviceAddress address_of(std::uint32_t slot) const { return addresses_[slot]; }

  [[nodiscard]] TimelineSample sample(std::size_t op) const;
  // Everything but the bounds, the timeline and the time.
  void finish(ReplayResult& result);

 private:
  void build();
  // As ReplayOptions::work_us_per_request has it.
  [[nodiscard]] std::function<std::chrono::nanoseconds()> clock() const;
  void make_allocator();
  [[nodiscard]] bool restore();
  [[nodiscard]] bool restore_segments();
  [[nodiscard]] bool allocate_start();
  void start_counting();
  void look_after_paged(std::size_t op);
  void let_streams_run();
  void check_bound();
  void take_outside();
  [[nodiscard]] memory::AllocationResult<DeviceAddress> allocate_in_pool(const Op& op);
  void record_failure(const Op& op, std::shared_ptr<const memory::OutOfMemoryReport> report);
  void record_served(DeviceAddress address);

  const Program& program_;
  const ReplayOptions& options_;
  std::unique_ptr<device::MetaDevice> device_;
  std::unique_ptr<memory::Allocator> allocator_;
  memory::CachingAllocator* caching_ = nullptr;  // of the two, the one it is
  memory::PagedAllocator* paged_ = nullptr;
  SegmentWatch watch_;
  std::vector<DeviceAddress> addresses_;  // by slot; 0 where the allocation failed
  std::uint64_t requests_ = 0;
  bool was_refused_place_ = false;
  std::shared_ptr<const memory::OutOfMemoryReport> report_{};  // of try_allocate's last failure
  memory::Statistics before_{};                                // what the start state counted
  std::vector<device::EventId> marks_{};  // by stream: where it was at the last look
  ReplayResult result_{};
};

}  // namespace headroom::replay::internal
