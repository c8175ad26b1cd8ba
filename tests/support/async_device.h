// AsyncDevice: a device that behaves as a GPU does, over the memory of a cpu device, so that what
// runs on it is proved ready for a GPU without one.
//
//   AsyncDevice device;                               // reports kCuda
//   memory::CachingAllocator allocator(device);
//   Tensor x = randn({3, 4}, {.device = allocator});  // by async_kernels.h, in the stream's order
//
// What is unlike the processor:
//  - Every stream is a queue with a thread, the default one too, and its work comes as late as may
//    be (async_gates.h): host code that does not wait reads what was there before.
//  - The processor cannot follow an address: they have a bit that no pointer has.
//  - A block that was allocated is filled with kPoison in the order of its stream, and again when
//    it was freed: to floating types that is not a number.
//  - free_segment waits for everything, as cudaFree does.
//
// `meta` can stand for it: profile_of(device) has its properties, and plans ask its kernels.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"

#include "tests/support/async_gates.h"
#include "tests/support/async_log.h"

namespace headroom::testing {

inline constexpr std::uint8_t kPoison = 0xFF;

// Which launches are to fail, and how many there were. A test's own, from any thread.
class AsyncLaunches {
 public:
  // The `position`-th launch from now on fails (1 is the next), having queued nothing.
  void fail_at(std::uint64_t position) noexcept { fails_ = seen_ + position; }
  void fail_none() noexcept { fails_ = 0; }
  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  // Launches that were given a workspace where the processor would need none.
  [[nodiscard]] std::uint64_t more_workspaces() const noexcept { return more_workspaces_; }

  // For kernels: counts one; whether it is to fail.
  [[nodiscard]] bool next_fails() noexcept { return ++seen_ == fails_; }
  void count_more_workspace() noexcept { ++more_workspaces_; }

 private:
  std::atomic<std::uint64_t> seen_{0};
  std::atomic<std::uint64_t> fails_{0};
  std::atomic<std::uint64_t> more_workspaces_{0};
};

struct AsyncOptions {
  int index = 9;
  std::uint64_t capacity_bytes = 1_GiB;
  AsyncPace pace = AsyncPace::kLate;
  unsigned seed = 1;
  // After which late work runs although nobody waits for it.
  std::chrono::milliseconds patience{2000};
};

class AsyncDevice final : public device::Device {
  using DeviceAddress = device::DeviceAddress;
  using EventId = device::EventId;
  using PageHandle = device::PageHandle;
  using StreamId = device::StreamId;
  template <class T>
  using Result = device::DeviceResult<T>;

 public:
  // Registers async_kernels() for kCuda.
  explicit AsyncDevice(const AsyncOptions& options = {});
  ~AsyncDevice() override;

  [[nodiscard]] AsyncLaunches& launches() noexcept { return launches_; }
  // From now on what is queued is kept there too; null ends that. One thread at a time.
  void set_log(AsyncLog* log) noexcept { log_ = log; }
  [[nodiscard]] AsyncLog* log() const noexcept { return log_; }
  // A kernel's task, which the log has by itself.
  Result<void> enqueue_launch(StreamId stream, device::HostTask task);

  // Addresses of the device as the cpu device knows them.
  [[nodiscard]] static constexpr bool is_far(DeviceAddress address) noexcept {
    return (address & kFar) != 0;
  }
  [[nodiscard]] static constexpr DeviceAddress near(DeviceAddress address) noexcept {
    return address & ~kFar;
  }

  [[nodiscard]] bool owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept override;

 protected:
  Result<DeviceAddress> do_allocate_segment(std::uint64_t size_bytes) override;
  Result<void> do_free_segment(DeviceAddress address) override;
  Result<DeviceAddress> do_reserve_addresses(std::uint64_t size_bytes) override;
  Result<void> do_release_addresses(DeviceAddress address) override;
  Result<PageHandle> do_create_pages(std::uint64_t size_bytes,
                                     device::PageOptions options) override;
  Result<void> do_release_pages(PageHandle handle) override;
  Result<void> do_map_pages(DeviceAddress address, std::span<const PageHandle> handles) override;
  Result<std::uint64_t> do_unmap_pages(DeviceAddress address, std::uint64_t size_bytes) override;
  Result<StreamId> do_create_stream(device::StreamOptions options) override;
  Result<StreamId> do_adopt_stream(device::NativeStream native, device::StreamLife life) override;
  Result<device::NativeStream> do_native_stream(StreamId stream) override;
  Result<void> do_release_stream(StreamId stream) override;
  Result<void> do_synchronize_stream(StreamId stream) override;
  Result<bool> do_is_capturing(StreamId stream) override;
  Result<EventId> do_record_event(StreamId stream, device::EventOptions options) override;
  Result<bool> do_query_event(EventId event) override;
  Result<void> do_wait_event(StreamId stream, EventId event) override;
  Result<void> do_synchronize_event(EventId event) override;
  Result<double> do_elapsed_ms(EventId begin, EventId end) override;
  Result<void> do_release_event(EventId event) override;
  Result<void> do_copy_to_device(DeviceAddress to,
                                 const void* from,
                                 std::uint64_t size_bytes,
                                 StreamId stream) override;
  Result<void> do_copy_to_host(void* to,
                               DeviceAddress from,
                               std::uint64_t size_bytes,
                               StreamId stream) override;
  Result<void> do_copy_within(DeviceAddress to,
                              DeviceAddress from,
                              std::uint64_t size_bytes,
                              StreamId stream) override;
  Result<void> do_copy_peer(DeviceAddress to,
                            Device& source,
                            DeviceAddress from,
                            std::uint64_t size_bytes,
                            StreamId stream) override;
  Result<void> do_fill(DeviceAddress to,
                       std::uint8_t value,
                       std::uint64_t size_bytes,
                       StreamId stream) override;
  Result<void> do_enqueue_host(StreamId stream, device::HostTask task) override;
  Result<void*> do_allocate_pinned(std::uint64_t size_bytes) override;
  Result<void> do_free_pinned(void* pointer) override;
  Result<device::MemoryInfo> do_memory_info() override;
  Result<std::vector<device::ProcessMemory>> do_processes() override;
  Result<std::vector<device::MemoryLevel>> do_measure() override;
  void do_block_allocated(DeviceAddress address,
                          std::uint64_t size_bytes,
                          StreamId stream) noexcept override;
  void do_block_freed(DeviceAddress address,
                      std::uint64_t size_bytes,
                      StreamId stream) noexcept override;

 private:
  // No pointer of a process has it.
  static constexpr DeviceAddress kFar = DeviceAddress{1} << 47U;
  [[nodiscard]] static DeviceAddress far(DeviceAddress address) noexcept;
  [[nodiscard]] static Result<DeviceAddress> far(Result<DeviceAddress> address) noexcept;

  AsyncDevice(const AsyncOptions& options, std::unique_ptr<device::CpuDevice> inner);

  [[nodiscard]] StreamId inner(StreamId stream) const noexcept;
  [[nodiscard]] StreamId outer(StreamId stream) const noexcept;
  // Puts a gate into the stream, and then the work.
  template <class Work>
  Result<void> queue(StreamId stream, const Work& work);
  // The same, and keeps the work in the log.
  template <class Work>
  Result<void> queue_and_log(StreamId stream, const Work& work);
  void begin_block(DeviceAddress address, std::uint64_t size_bytes, StreamId stream) noexcept;
  void end_block(DeviceAddress address, std::uint64_t size_bytes, StreamId stream) noexcept;
  void drain() noexcept;

  AsyncGates gates_;
  AsyncLaunches launches_;
  AsyncLog* log_ = nullptr;
  std::unique_ptr<device::CpuDevice> inner_;
  StreamId default_stream_{};  // of the inner device
};

}  // namespace headroom::testing
