// CudaDevice: an NVIDIA GPU behind the device contract, through the driver, which is opened at run
// time: one binary runs with and without a GPU.
//
//   if (CudaDevice::count() == 0) log(CudaDevice::why_none());
//   auto device = CudaDevice::create({.index = 1}).value();
//   auto stream = device->adopt_stream(reinterpret_cast<NativeStream>(torch_stream));
//
// It uses the device's primary context, the one of the CUDA runtime and of PyTorch, and retains it
// on the first call that needs it: making a CudaDevice takes no memory of the card. Whatever
// context the calling thread has is put back after each call.
//
// Differences from other backends:
//  - Copies from or to host memory that is not pinned may wait for the stream, as in CUDA.
//  - free_pinned, like free_segment, may wait for all queued work.
//  - A host task runs on a thread of its stream's own, so it may call the device; what it frees
//    goes back to the driver when somebody outside of a task next asks for memory.
//  - An adopted stream stays alive until release_stream. One that is per-thread by CUDA's rule
//    (cudaStreamPerThread) is named from its own thread only.
//  - Once a kernel has failed, the context is lost: the first call to learn of it names the error,
//    and every call after it answers kFailed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"

namespace headroom::device {

struct CudaOptions {
  int index = 0;  // as CUDA numbers the devices, CUDA_VISIBLE_DEVICES included
  // The share of the card that this device may take, which is then all it knows of: memory_info
  // speaks of these bytes. Nothing: the whole card, shared with whoever else is on it.
  std::optional<std::uint64_t> capacity_bytes{};
  // The default stream is a stream of this device's own, which can be captured into a graph, rather
  // than the legacy default stream of CUDA, which cannot and which other streams wait for.
  bool owns_default_stream = false;
};

class CudaDevice final : public Device {
 public:
  // The error says why there is no such device.
  [[nodiscard]] static Result<std::unique_ptr<CudaDevice>, std::string> create(
      CudaOptions options = {});
  // Waits for all queued work, then gives everything back.
  ~CudaDevice() override;

  // How many there are. The first call opens and starts the driver.
  [[nodiscard]] static int count();
  // Why there is none, in one line; empty when there is one.
  [[nodiscard]] static std::string why_none();

  // Addresses one device may reserve. A process has 128 TiB (47 bits) for everything: its own
  // memory, the driver's, and every card's. A quarter of it serves 190 expandable segments of a
  // card of 150 GB, each of which reserves 9/8 of the card.
  static constexpr std::uint64_t kMaxReservationBytes = 32_TiB;
  static constexpr std::uint64_t kMaxMappings = std::uint64_t{1} << 32U;

  // Bytes of the segments and page handles that are live here: what the card holds for this
  // device, less the driver's own rounding.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;
  // A sentence about the first broken invariant, or nothing.
  [[nodiscard]] std::optional<std::string> check_invariants() const;

  [[nodiscard]] PageSharing* sharing() noexcept override;
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

 private:
  struct State;
  CudaDevice(Properties properties, std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headroom::device
