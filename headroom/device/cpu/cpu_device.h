// CpuDevice: main memory behind the device contract, for real.
//
// It has a capacity and refuses past it. Its virtual memory is one memory file whose pages are
// mapped, aliased and remapped over reserved addresses. Its streams are queues with threads of
// their own (the default stream runs inline, on the caller's thread), so a missing wait shows as
// wrong data and a test can prove it.
//
//   auto device = CpuDevice::create({.capacity_bytes = 256_MiB, .granularity_bytes = 64_KiB});
//
// Where the contract leaves a choice:
//  - Calls of several threads on the default stream are ordered only as the threads order them.
//  - free_segment does not wait; memory that queued work may use goes back when the work is done.
//  - adopt_stream takes any number: 0 is the default stream, each other one a queue of its own.
//  - kOutOfMemory also comes when the machine itself has little left, whatever the capacity says.
//  - When the process ends, streams finish the task they run and stop. What waits for them then
//    answers kShutDown; the default stream and everything that frees still work.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/base/bytes.h"
#include "headroom/device/call_costs.h"
#include "headroom/device/device.h"

namespace headroom::device {

struct CpuOptions {
  int index = 0;
  // Unset: half of the machine's memory, or of the container's limit where that is lower.
  std::optional<std::uint64_t> capacity_bytes{};
  // A power of two and a multiple of the system's page.
  std::uint64_t granularity_bytes = 2_MiB;
  // The calls wait as long as a driver's would; free by default.
  CallCosts latencies{};
};

class CpuDevice final : public Device {
 public:
  // Throws InvalidArgument for a capacity of zero or past the machine's memory, and for a
  // granularity that cannot work; Error when the system refuses.
  [[nodiscard]] static std::unique_ptr<CpuDevice> create(CpuOptions options = {});
  ~CpuDevice() override;

  // The bytes the machine can give to all processes together: memory, or the container's limit.
  [[nodiscard]] static std::uint64_t machine_memory_bytes();

  // Mappings alive in the whole process and how many there may be: the kernel refuses at about
  // 61,000, and then malloc itself starts to fail, so we stop long before.
  static constexpr std::uint64_t kMaxMappings = 16'000;
  [[nodiscard]] static std::uint64_t live_mappings() noexcept;

  // Addresses one device may reserve.
  static constexpr std::uint64_t kMaxReservationBytes = 256_GiB;

  [[nodiscard]] bool owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept override;

 protected:
  DeviceResult<DeviceAddress> do_allocate_segment(std::uint64_t size_bytes) override;
  DeviceResult<void> do_free_segment(DeviceAddress address) override;
  DeviceResult<DeviceAddress> do_reserve_addresses(std::uint64_t size_bytes) override;
  DeviceResult<void> do_release_addresses(DeviceAddress address) override;
  DeviceResult<PageHandle> do_create_pages(std::uint64_t size_bytes, PageOptions options) override;
  DeviceResult<void> do_release_pages(PageHandle handle) override;
  DeviceResult<void> do_map_pages(DeviceAddress address,
                                  std::span<const PageHandle> handles) override;
  DeviceResult<std::uint64_t> do_unmap_pages(DeviceAddress address,
                                             std::uint64_t size_bytes) override;
  DeviceResult<StreamId> do_create_stream(StreamOptions options) override;
  DeviceResult<StreamId> do_adopt_stream(NativeStream native, StreamLife life) override;
  DeviceResult<NativeStream> do_native_stream(StreamId stream) override;
  DeviceResult<void> do_release_stream(StreamId stream) override;
  DeviceResult<void> do_synchronize_stream(StreamId stream) override;
  DeviceResult<bool> do_is_capturing(StreamId stream) override;
  DeviceResult<EventId> do_record_event(StreamId stream, EventOptions options) override;
  DeviceResult<bool> do_query_event(EventId event) override;
  DeviceResult<void> do_wait_event(StreamId stream, EventId event) override;
  DeviceResult<void> do_synchronize_event(EventId event) override;
  DeviceResult<double> do_elapsed_ms(EventId begin, EventId end) override;
  DeviceResult<void> do_release_event(EventId event) override;
  DeviceResult<void> do_copy_to_device(DeviceAddress to,
                                       const void* from,
                                       std::uint64_t size_bytes,
                                       StreamId stream) override;
  DeviceResult<void> do_copy_to_host(void* to,
                                     DeviceAddress from,
                                     std::uint64_t size_bytes,
                                     StreamId stream) override;
  DeviceResult<void> do_copy_within(DeviceAddress to,
                                    DeviceAddress from,
                                    std::uint64_t size_bytes,
                                    StreamId stream) override;
  DeviceResult<void> do_copy_peer(DeviceAddress to,
                                  Device& source,
                                  DeviceAddress from,
                                  std::uint64_t size_bytes,
                                  StreamId stream) override;
  DeviceResult<void> do_fill(DeviceAddress to,
                             std::uint8_t value,
                             std::uint64_t size_bytes,
                             StreamId stream) override;
  DeviceResult<void> do_enqueue_host(StreamId stream, HostTask task) override;
  DeviceResult<void*> do_allocate_pinned(std::uint64_t size_bytes) override;
  DeviceResult<void> do_free_pinned(void* pointer) override;
  DeviceResult<MemoryInfo> do_memory_info() override;
  DeviceResult<std::vector<ProcessMemory>> do_processes() override;
  DeviceResult<std::vector<MemoryLevel>> do_measure() override;
  void do_block_allocated(DeviceAddress address,
                          std::uint64_t size_bytes,
                          StreamId stream) noexcept override;
  void do_block_freed(DeviceAddress address,
                      std::uint64_t size_bytes,
                      StreamId stream) noexcept override;

 private:
  struct State;
  CpuDevice(Properties properties, std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headroom::device
