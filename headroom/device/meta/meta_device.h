// MetaDevice: a device with addresses only. No bytes, no arithmetic, any capacity.
//
// It gives the answers a real device would give, so the real allocator runs over it to replay a
// trace, and the real training step runs over it to plan one. It stands for a backend whose
// profile (granularity, limits) it takes.
//
//   auto card = MetaDevice::create({.capacity_bytes = 80_GiB});
//   auto segment = card->allocate_segment(20_MiB);     // an address; nothing is behind it
//
// Copies to it and fills are checked and do nothing; a copy to the host answers kNotSupported,
// because there are no values. Pinned memory is real, for the program touches it. A host task runs
// at once. adopt_stream gives the native stream's own number as the id, so that a recording's
// streams keep their names.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"

namespace headroom::device {

// The properties that a meta device copies from the backend it stands for.
struct BackendProfile {
  DeviceKind stands_for = DeviceKind::kCuda;
  std::uint64_t granularity_bytes = 2_MiB;
  std::uint64_t segment_alignment_bytes = 2_MiB;
  std::uint64_t max_reservation_bytes = 32_TiB;  // see CudaDevice
  std::uint64_t max_mappings = std::uint64_t{1} << 32U;
  bool has_virtual_memory = true;
  // Kernels may choose their workspaces by these.
  int multiprocessors = 0;
  std::string architecture = "none";
};

[[nodiscard]] BackendProfile cuda_profile();
[[nodiscard]] BackendProfile cpu_profile();
// That of a device which is there: a meta device with it answers as that one does.
[[nodiscard]] BackendProfile profile_of(const Device& device);

enum class EventCompletion : std::uint8_t {
  kAtOnce,  // an event is complete when it is recorded
  kByHand,  // complete_event(s) completes it, or the host waiting for it: nothing here takes time
};

// The driver mostly hands out falling addresses, and PyTorch before 2.13 breaks ties by address.
enum class AddressOrder : std::uint8_t { kDescending, kAscending };

struct MetaOptions {
  int index = 0;
  std::uint64_t capacity_bytes = 80_GiB;
  BackendProfile profile{};
  EventCompletion events = EventCompletion::kAtOnce;
  AddressOrder addresses = AddressOrder::kDescending;
  // The clock of now(). Without one time stands still, and whatever happens depends on nothing but
  // the calls.
  std::function<std::chrono::nanoseconds()> clock{};
};

// The state of a device in the middle of a history.
struct MetaState {
  struct Segment {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
  };
  // A handle only says here which mappings are of the same memory; kNone is a handle of its own.
  struct MappedPages {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
    PageHandle handle = PageHandle::kNone;
    // Its handle was released: the memory goes with the last mapping. The same for all aliases.
    bool is_released = false;
  };
  struct UnmappedPages {
    std::uint64_t size_bytes = 0;
    PageHandle handle = PageHandle::kNone;
  };
  struct Reservation {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
    std::vector<MappedPages> pages{};
  };
  std::vector<Segment> segments{};
  std::vector<Reservation> reservations{};
  std::vector<UnmappedPages> unmapped_pages{};
  std::vector<StreamId> streams{};  // besides the default stream
};

// Pages of a state, with the handle they now have.
struct RestoredPages {
  DeviceAddress address = 0;  // 0 where they are not mapped
  PageHandle handle = PageHandle::kNone;
};

// Told of what a driver takes time for, after it was done: each segment, and each handle that is
// created, released, mapped or unmapped, with its size. The device's lock is held.
class CallWatch {
 public:
  virtual void device_called(Call call, std::uint64_t size_bytes) noexcept = 0;

 protected:
  ~CallWatch() = default;
};

class MetaDevice final : public Device {
 public:
  // Throws InvalidArgument for a capacity of zero or of 1 EiB and above, for a granularity or
  // alignment that is not a power of two of 512 at least, and for a negative index.
  [[nodiscard]] static std::unique_ptr<MetaDevice> create(const MetaOptions& options = {});
  ~MetaDevice() override;

  [[nodiscard]] const BackendProfile& profile() const noexcept;

  // At most one; null stops. The watch outlives its use.
  void set_watch(CallWatch* watch) noexcept;

  // The next segment, or reservation, gets this address instead of one of our choosing; any address
  // that is aligned to 512 bytes, or to the granularity. Several wait in line. A place that is
  // taken is refused when its turn comes (kInvalidArgument). A call that fails leaves its place in
  // line, so that an allocator may make room and ask again.
  void place_next_segment(DeviceAddress address);
  void place_next_reservation(DeviceAddress address);
  // Forgets the addresses that still wait in line.
  void forget_places() noexcept;

  // With EventCompletion::kByHand: completes every event recorded on the stream so far; or this
  // one and those recorded before it on its stream, because a stream runs in order.
  DeviceResult<void> complete_events(StreamId stream) noexcept;
  DeviceResult<void> complete_event(EventId event) noexcept;

  // Makes a device that holds no memory hold `state`; refuses a state that overlaps itself or
  // exceeds the capacity, and then changes nothing. Answers the new handle of every mapping, in
  // order, and then of the unmapped pages.
  DeviceResult<std::vector<RestoredPages>> restore(const MetaState& state) noexcept;
  // The current state, in order of address.
  [[nodiscard]] MetaState state() const;

  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override;
  [[nodiscard]] bool owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept override;

  // A sentence about the first broken invariant, or nothing.
  [[nodiscard]] std::optional<std::string> check_invariants() const;

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
  MetaDevice(Properties properties, std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headroom::device
