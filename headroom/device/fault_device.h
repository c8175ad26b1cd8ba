// FaultDevice: wraps a device and makes any call fail at any position, to test what is above it.
//
//   FaultDevice device(*inner);
//   device.fail_at(Call::kMapPages, 3, StatusCode::kOutOfMemory);   // the third map from now on
//   ...
//   for (n = 1; n <= calls_of_a_clean_run; ++n) {
//     device.clear();
//     device.fail_at(n, StatusCode::kFailed);
//     scenario(device);
//   }
//
// With nothing planned it is transparent: the answers, properties and block notes are the inner
// device's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/device/device.h"

namespace headroom::device {

class FaultDevice final : public Device {
 public:
  // `inner` outlives the wrapper.
  explicit FaultDevice(Device& inner);
  ~FaultDevice() override;

  // The `position`-th call of this kind from now on (1 is the next) fails, and so do the
  // `times - 1` calls of the kind after it. Failed calls never reach the inner device. A map of
  // many handles is one call here, since it does all or nothing. Throws InvalidArgument for a
  // position of 0.
  void fail_at(Call call,
               std::uint64_t position,
               StatusCode code = StatusCode::kFailed,
               std::uint64_t times = 1);
  // The same over calls of every kind.
  void fail_at(std::uint64_t position,
               StatusCode code = StatusCode::kFailed,
               std::uint64_t times = 1);
  // Forgets what was planned and what was counted.
  void clear() noexcept;

  // Calls seen since construction or the last clear(), failed ones included. What the contract
  // itself refuses (a size of zero, a range that is nobody's) gets no further and is not seen.
  [[nodiscard]] std::uint64_t seen() const noexcept;
  [[nodiscard]] std::uint64_t seen(Call call) const noexcept;
  // Calls that were made to fail.
  [[nodiscard]] std::uint64_t failed() const noexcept;

  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override { return inner_.now(); }
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
  template <class T, class Forward>
  DeviceResult<T> pass(Call call, Forward&& forward);

  Device& inner_;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::device
