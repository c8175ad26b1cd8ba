// Device: one contract for everything memory can live on.
//
//   auto device = CpuDevice::create({.capacity_bytes = 1_GiB});
//   auto segment = device->allocate_segment(2_MiB);
//   if (!segment) log(to_string(segment.error()));          // values, not exceptions
//   device->fill(*segment, 0, 2_MiB, StreamId::kDefault);
//   device->free_segment(*segment);
//
// The contract, for every call of every backend:
//  - noexcept. What goes wrong is a DeviceStatus; a call that fails has changed nothing.
//  - Any thread may call. Calls of one device may wait for one another, never for queued work
//    unless the comment says so.
//  - Sizes of 1 EiB and above (kOutOfMemory) and zero sizes (kInvalidArgument) are refused before
//    the backend sees them.
//  - In the child of a fork every call answers kForked.
//  - Physical memory is what counts against the capacity: segments and page handles. Addresses
//    are free.
//
// The public functions check and count, and call the virtual `do_` functions of a backend.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/device/attachment.h"
#include "headroom/device/call.h"
#include "headroom/device/page_sharing.h"
#include "headroom/device/types.h"

namespace headroom::device {

class Device {
 public:
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device();

  [[nodiscard]] const Properties& properties() const noexcept { return properties_; }
  [[nodiscard]] DeviceId id() const noexcept { return properties_.id; }
  // How often a call was made, refused ones included. A map counts each of its handles, and so does
  // an unmap, since drivers take as long for each.
  [[nodiscard]] std::uint64_t calls(Call call) const noexcept;

  // --- Segments: memory with an address, as cudaMalloc gives it -------------------------------

  // Aligned to 512 bytes at least. kOutOfMemory when the capacity does not allow it.
  DeviceResult<DeviceAddress> allocate_segment(std::uint64_t size_bytes) noexcept;
  // `address` is what allocate_segment returned. May wait for all queued work, as cudaFree does.
  DeviceResult<void> free_segment(DeviceAddress address) noexcept;

  // --- Virtual memory: addresses here, physical pages there, mapped at will -------------------

  // Addresses without memory. Sizes and alignment are multiples of the granularity.
  DeviceResult<DeviceAddress> reserve_addresses(std::uint64_t size_bytes) noexcept;
  // A whole reservation, with nothing mapped in it.
  DeviceResult<void> release_addresses(DeviceAddress address) noexcept;

  // Physical memory without an address, a multiple of the granularity.
  DeviceResult<PageHandle> create_pages(std::uint64_t size_bytes,
                                        PageOptions options = {}) noexcept;
  // The memory goes back when its last mapping has gone.
  DeviceResult<void> release_pages(PageHandle handle) noexcept;

  // Maps whole handles one behind the other from `address` on, readable and writable. The range
  // lies in one reservation and is unmapped. One handle may be mapped at many addresses at once.
  // All or nothing. Never waits for queued work.
  DeviceResult<void> map_pages(DeviceAddress address, std::span<const PageHandle> handles) noexcept;
  // Unmaps every mapping in [address, address + size): whole mappings only, and at least one; gaps
  // between them do not matter. Does not wait for queued work: that nobody uses the range any more
  // is the caller's to know. Returns how many mappings that were.
  DeviceResult<std::uint64_t> unmap_pages(DeviceAddress address, std::uint64_t size_bytes) noexcept;

  // Null where the backend shares no pages.
  [[nodiscard]] virtual PageSharing* sharing() noexcept { return nullptr; }

  // --- Streams and events ---------------------------------------------------------------------

  DeviceResult<StreamId> create_stream(StreamOptions options = {}) noexcept;
  // Takes a stream made by somebody else; the same native stream gives the same id.
  DeviceResult<StreamId> adopt_stream(NativeStream native,
                                      StreamLife life = StreamLife::kUntilReleased) noexcept;
  // The backend's own name of the stream, for libraries that take one; adopting it gives the
  // same id. Good until the stream is released.
  DeviceResult<NativeStream> native_stream(StreamId stream) noexcept;
  // Returns at once; queued work still runs. Blocks may name it on: until thousands more are gone,
  // an event recorded on it completes when that work has. Everything else answers kUnknownHandle.
  DeviceResult<void> release_stream(StreamId stream) noexcept;
  // Waits until all that is queued now has run.
  DeviceResult<void> synchronize_stream(StreamId stream) noexcept;
  // While this holds, events are not queried and nothing is unmapped.
  DeviceResult<bool> is_capturing(StreamId stream) noexcept;

  // Completes when all that is queued on the stream now has run. Release it after use. A timed one
  // needs a stream that was not released.
  DeviceResult<EventId> record_event(StreamId stream, EventOptions options = {}) noexcept;
  DeviceResult<bool> query_event(EventId event) noexcept;
  // Work queued on `stream` from now on waits for the event. The host waits only on the cpu
  // device's default stream, which runs inline.
  DeviceResult<void> wait_event(StreamId stream, EventId event) noexcept;
  DeviceResult<void> synchronize_event(EventId event) noexcept;
  // Milliseconds from one timed event to the other, after waiting for both; below 0 where `end`
  // came first. By the clock of now() on a meta device.
  DeviceResult<double> elapsed_ms(EventId begin, EventId end) noexcept;
  DeviceResult<void> release_event(EventId event) noexcept;

  // --- Work in stream order -------------------------------------------------------------------

  // Device ranges must lie inside one segment or inside mapped pages. Host memory must stay alive
  // until the stream has passed the copy.
  DeviceResult<void> copy_to_device(DeviceAddress to,
                                    const void* from,
                                    std::uint64_t size_bytes,
                                    StreamId stream) noexcept;
  DeviceResult<void> copy_to_host(void* to,
                                  DeviceAddress from,
                                  std::uint64_t size_bytes,
                                  StreamId stream) noexcept;
  DeviceResult<void> copy_within(DeviceAddress to,
                                 DeviceAddress from,
                                 std::uint64_t size_bytes,
                                 StreamId stream) noexcept;
  // From another device of the same kind, in the order of this device's `stream`. The source must
  // stay alive until that stream has passed the copy: its own device does not know of it.
  DeviceResult<void> copy_peer(DeviceAddress to,
                               Device& source,
                               DeviceAddress from,
                               std::uint64_t size_bytes,
                               StreamId stream) noexcept;
  DeviceResult<void> fill(DeviceAddress to,
                          std::uint8_t value,
                          std::uint64_t size_bytes,
                          StreamId stream) noexcept;
  DeviceResult<void> enqueue_host(StreamId stream, HostTask task) noexcept;

  // --- Host memory the device copies from fastest ---------------------------------------------

  DeviceResult<void*> allocate_pinned(std::uint64_t size_bytes) noexcept;
  DeviceResult<void> free_pinned(void* pointer) noexcept;

  // --- Questions ------------------------------------------------------------------------------

  DeviceResult<MemoryInfo> memory_info() noexcept;
  DeviceResult<std::vector<ProcessMemory>> processes() noexcept;
  // The hierarchy with each level's measured speed; takes about a second.
  DeviceResult<std::vector<MemoryLevel>> measure() noexcept;

  // A clock for durations, which never goes back. It stands still on a meta device, where nothing
  // takes time.
  [[nodiscard]] virtual std::chrono::nanoseconds now() const noexcept;

  // True when [address, address + size) is live memory of this device; never in a forked child.
  [[nodiscard]] virtual bool owns_range(DeviceAddress address,
                                        std::uint64_t size_bytes) noexcept = 0;

  // Whether the backend wants to hear of the blocks inside its segments (the cpu device under
  // AddressSanitizer, which then catches a use after the block was freed, in stream order).
  [[nodiscard]] bool tracks_blocks() const noexcept { return tracks_blocks_; }
  void block_allocated(DeviceAddress address, std::uint64_t size_bytes, StreamId stream) noexcept;
  void block_freed(DeviceAddress address, std::uint64_t size_bytes, StreamId stream) noexcept;

  // At most one, which is destroyed while the device still works, before anything else of it goes.
  // In the child of a fork it is left alone: what it holds is the parent's.
  [[nodiscard]] Attachment* attachment() const noexcept {
    return attachment_.load(std::memory_order_acquire);
  }
  // Keeps it. Only while there is none: who attaches sees to that.
  Attachment& attach(std::unique_ptr<Attachment> attachment) noexcept;

 protected:
  explicit Device(Properties properties);
  // First in the destructor of every backend.
  void detach() noexcept;

  virtual DeviceResult<DeviceAddress> do_allocate_segment(std::uint64_t size_bytes) = 0;
  virtual DeviceResult<void> do_free_segment(DeviceAddress address) = 0;
  virtual DeviceResult<DeviceAddress> do_reserve_addresses(std::uint64_t size_bytes) = 0;
  virtual DeviceResult<void> do_release_addresses(DeviceAddress address) = 0;
  virtual DeviceResult<PageHandle> do_create_pages(std::uint64_t size_bytes,
                                                   PageOptions options) = 0;
  virtual DeviceResult<void> do_release_pages(PageHandle handle) = 0;
  virtual DeviceResult<void> do_map_pages(DeviceAddress address,
                                          std::span<const PageHandle> handles) = 0;
  virtual DeviceResult<std::uint64_t> do_unmap_pages(DeviceAddress address,
                                                     std::uint64_t size_bytes) = 0;
  virtual DeviceResult<StreamId> do_create_stream(StreamOptions options) = 0;
  virtual DeviceResult<StreamId> do_adopt_stream(NativeStream native, StreamLife life) = 0;
  virtual DeviceResult<NativeStream> do_native_stream(StreamId stream) = 0;
  virtual DeviceResult<void> do_release_stream(StreamId stream) = 0;
  virtual DeviceResult<void> do_synchronize_stream(StreamId stream) = 0;
  virtual DeviceResult<bool> do_is_capturing(StreamId stream) = 0;
  virtual DeviceResult<EventId> do_record_event(StreamId stream, EventOptions options) = 0;
  virtual DeviceResult<bool> do_query_event(EventId event) = 0;
  virtual DeviceResult<void> do_wait_event(StreamId stream, EventId event) = 0;
  virtual DeviceResult<void> do_synchronize_event(EventId event) = 0;
  virtual DeviceResult<double> do_elapsed_ms(EventId begin, EventId end) = 0;
  virtual DeviceResult<void> do_release_event(EventId event) = 0;
  virtual DeviceResult<void> do_copy_to_device(DeviceAddress to,
                                               const void* from,
                                               std::uint64_t size_bytes,
                                               StreamId stream) = 0;
  virtual DeviceResult<void> do_copy_to_host(void* to,
                                             DeviceAddress from,
                                             std::uint64_t size_bytes,
                                             StreamId stream) = 0;
  virtual DeviceResult<void> do_copy_within(DeviceAddress to,
                                            DeviceAddress from,
                                            std::uint64_t size_bytes,
                                            StreamId stream) = 0;
  virtual DeviceResult<void> do_copy_peer(DeviceAddress to,
                                          Device& source,
                                          DeviceAddress from,
                                          std::uint64_t size_bytes,
                                          StreamId stream) = 0;
  virtual DeviceResult<void> do_fill(DeviceAddress to,
                                     std::uint8_t value,
                                     std::uint64_t size_bytes,
                                     StreamId stream) = 0;
  virtual DeviceResult<void> do_enqueue_host(StreamId stream, HostTask task) = 0;
  virtual DeviceResult<void*> do_allocate_pinned(std::uint64_t size_bytes) = 0;
  virtual DeviceResult<void> do_free_pinned(void* pointer) = 0;
  virtual DeviceResult<MemoryInfo> do_memory_info() = 0;
  virtual DeviceResult<std::vector<ProcessMemory>> do_processes() = 0;
  virtual DeviceResult<std::vector<MemoryLevel>> do_measure() = 0;
  virtual void do_block_allocated(DeviceAddress, std::uint64_t, StreamId) noexcept {}
  virtual void do_block_freed(DeviceAddress, std::uint64_t, StreamId) noexcept {}

  void set_tracks_blocks(bool tracks) noexcept { tracks_blocks_ = tracks; }
  [[nodiscard]] bool is_forked() const noexcept { return made_.is_forked(); }

 private:
  template <class T, class Body>
  DeviceResult<T> perform(Call call, std::uint64_t weight, Body&& body) noexcept;
  DeviceResult<void> check_ranges(std::initializer_list<DeviceAddress> starts,
                                  std::uint64_t size_bytes) noexcept;

  Properties properties_;
  bool tracks_blocks_ = false;
  ForkMark made_{};
  std::array<std::atomic<std::uint64_t>, kCallCount> calls_{};
  std::atomic<Attachment*> attachment_{nullptr};
};

}  // namespace headroom::device
