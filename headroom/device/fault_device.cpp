#include "headroom/device/fault_device.h"

#include <mutex>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/device/internal/status.h"

namespace headroom::device {
namespace {

// Calls number `first` to `last` of a kind, or of all kinds, fail.
struct Fault {
  std::optional<Call> call;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  StatusCode code = StatusCode::kFailed;
};

std::uint64_t saturated(std::uint64_t a, std::uint64_t b) noexcept {
  return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

}  // namespace

struct FaultDevice::State {
  // Counts the call; the status it is to fail with, if it is to fail.
  [[nodiscard]] DeviceResult<void> admit(Call call) noexcept {
    const std::lock_guard lock(mutex);
    const std::uint64_t of_all = ++seen_of_all;
    const std::uint64_t of_kind = ++seen[static_cast<std::size_t>(call)];
    for (const Fault& fault : faults) {
      if (fault.call && *fault.call != call) continue;
      const std::uint64_t position = fault.call ? of_kind : of_all;
      if (position < fault.first || position > fault.last) continue;
      ++failed;
      return internal::fail(fault.code, "made to fail by a FaultDevice");
    }
    return {};
  }

  void plan(std::optional<Call> call,
            std::uint64_t position,
            StatusCode code,
            std::uint64_t times) {
    if (position == 0) throw InvalidArgument("fail_at: positions count from 1, the next call");
    if (times == 0) return;
    const std::lock_guard lock(mutex);
    const std::uint64_t before = call ? seen[static_cast<std::size_t>(*call)] : seen_of_all;
    const std::uint64_t first = saturated(before, position);
    faults.push_back(
        {.call = call, .first = first, .last = saturated(first, times - 1), .code = code});
  }

  std::mutex mutex;
  std::vector<Fault> faults;
  std::array<std::uint64_t, kCallCount> seen{};
  std::uint64_t seen_of_all = 0;
  std::uint64_t failed = 0;
};

FaultDevice::FaultDevice(Device& inner)
    : Device(inner.properties()), inner_(inner), state_(std::make_unique<State>()) {
  set_tracks_blocks(inner.tracks_blocks());
}

FaultDevice::~FaultDevice() { detach(); }

void FaultDevice::fail_at(Call call, std::uint64_t position, StatusCode code, std::uint64_t times) {
  state_->plan(call, position, code, times);
}

void FaultDevice::fail_at(std::uint64_t position, StatusCode code, std::uint64_t times) {
  state_->plan(std::nullopt, position, code, times);
}

void FaultDevice::clear() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->faults.clear();
  state_->seen.fill(0);
  state_->seen_of_all = 0;
  state_->failed = 0;
}

std::uint64_t FaultDevice::seen() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->seen_of_all;
}

std::uint64_t FaultDevice::seen(Call call) const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->seen[static_cast<std::size_t>(call)];
}

std::uint64_t FaultDevice::failed() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->failed;
}

bool FaultDevice::owns_range(DeviceAddress address, std::uint64_t size_bytes) noexcept {
  return inner_.owns_range(address, size_bytes);
}

// The inner device's public functions, not its own `do_` ones: it counts its calls and checks
// them as if nobody were in between.
template <class T, class Forward>
DeviceResult<T> FaultDevice::pass(Call call, Forward&& forward) {
  if (const auto admitted = state_->admit(call); !admitted) return Unexpected(admitted.error());
  return forward();
}

DeviceResult<DeviceAddress> FaultDevice::do_allocate_segment(std::uint64_t size_bytes) {
  return pass<DeviceAddress>(Call::kAllocateSegment,
                             [&] { return inner_.allocate_segment(size_bytes); });
}

DeviceResult<void> FaultDevice::do_free_segment(DeviceAddress address) {
  return pass<void>(Call::kFreeSegment, [&] { return inner_.free_segment(address); });
}

DeviceResult<DeviceAddress> FaultDevice::do_reserve_addresses(std::uint64_t size_bytes) {
  return pass<DeviceAddress>(Call::kReserveAddresses,
                             [&] { return inner_.reserve_addresses(size_bytes); });
}

DeviceResult<void> FaultDevice::do_release_addresses(DeviceAddress address) {
  return pass<void>(Call::kReleaseAddresses, [&] { return inner_.release_addresses(address); });
}

DeviceResult<PageHandle> FaultDevice::do_create_pages(std::uint64_t size_bytes,
                                                      PageOptions options) {
  return pass<PageHandle>(Call::kCreatePages,
                          [&] { return inner_.create_pages(size_bytes, options); });
}

DeviceResult<void> FaultDevice::do_release_pages(PageHandle handle) {
  return pass<void>(Call::kReleasePages, [&] { return inner_.release_pages(handle); });
}

DeviceResult<void> FaultDevice::do_map_pages(DeviceAddress address,
                                             std::span<const PageHandle> handles) {
  return pass<void>(Call::kMapPages, [&] { return inner_.map_pages(address, handles); });
}

DeviceResult<std::uint64_t> FaultDevice::do_unmap_pages(DeviceAddress address,
                                                        std::uint64_t size_bytes) {
  return pass<std::uint64_t>(Call::kUnmapPages,
                             [&] { return inner_.unmap_pages(address, size_bytes); });
}

DeviceResult<StreamId> FaultDevice::do_create_stream(StreamOptions options) {
  return pass<StreamId>(Call::kCreateStream, [&] { return inner_.create_stream(options); });
}

DeviceResult<StreamId> FaultDevice::do_adopt_stream(NativeStream native, StreamLife life) {
  return pass<StreamId>(Call::kAdoptStream, [&] { return inner_.adopt_stream(native, life); });
}

DeviceResult<NativeStream> FaultDevice::do_native_stream(StreamId stream) {
  return pass<NativeStream>(Call::kNativeStream, [&] { return inner_.native_stream(stream); });
}

DeviceResult<void> FaultDevice::do_release_stream(StreamId stream) {
  return pass<void>(Call::kReleaseStream, [&] { return inner_.release_stream(stream); });
}

DeviceResult<void> FaultDevice::do_synchronize_stream(StreamId stream) {
  return pass<void>(Call::kSynchronizeStream, [&] { return inner_.synchronize_stream(stream); });
}

DeviceResult<bool> FaultDevice::do_is_capturing(StreamId stream) {
  return pass<bool>(Call::kIsCapturing, [&] { return inner_.is_capturing(stream); });
}

DeviceResult<EventId> FaultDevice::do_record_event(StreamId stream, EventOptions options) {
  return pass<EventId>(Call::kRecordEvent, [&] { return inner_.record_event(stream, options); });
}

DeviceResult<bool> FaultDevice::do_query_event(EventId event) {
  return pass<bool>(Call::kQueryEvent, [&] { return inner_.query_event(event); });
}

DeviceResult<void> FaultDevice::do_wait_event(StreamId stream, EventId event) {
  return pass<void>(Call::kWaitEvent, [&] { return inner_.wait_event(stream, event); });
}

DeviceResult<void> FaultDevice::do_synchronize_event(EventId event) {
  return pass<void>(Call::kSynchronizeEvent, [&] { return inner_.synchronize_event(event); });
}

DeviceResult<double> FaultDevice::do_elapsed_ms(EventId begin, EventId end) {
  return pass<double>(Call::kElapsed, [&] { return inner_.elapsed_ms(begin, end); });
}

DeviceResult<void> FaultDevice::do_release_event(EventId event) {
  return pass<void>(Call::kReleaseEvent, [&] { return inner_.release_event(event); });
}

DeviceResult<void> FaultDevice::do_copy_to_device(DeviceAddress to,
                                                  const void* from,
                                                  std::uint64_t size_bytes,
                                                  StreamId stream) {
  return pass<void>(Call::kCopyToDevice,
                    [&] { return inner_.copy_to_device(to, from, size_bytes, stream); });
}

DeviceResult<void> FaultDevice::do_copy_to_host(void* to,
                                                DeviceAddress from,
                                                std::uint64_t size_bytes,
                                                StreamId stream) {
  return pass<void>(Call::kCopyToHost,
                    [&] { return inner_.copy_to_host(to, from, size_bytes, stream); });
}

DeviceResult<void> FaultDevice::do_copy_within(DeviceAddress to,
                                               DeviceAddress from,
                                               std::uint64_t size_bytes,
                                               StreamId stream) {
  return pass<void>(Call::kCopyWithin,
                    [&] { return inner_.copy_within(to, from, size_bytes, stream); });
}

DeviceResult<void> FaultDevice::do_copy_peer(DeviceAddress to,
                                             Device& source,
                                             DeviceAddress from,
                                             std::uint64_t size_bytes,
                                             StreamId stream) {
  // A backend may know its own kind of device only, so it is shown what is inside the wrapper.
  Device* unwrapped = &source;
  while (auto* wrapper = dynamic_cast<FaultDevice*>(unwrapped)) unwrapped = &wrapper->inner_;
  return pass<void>(Call::kCopyPeer,
                    [&] { return inner_.copy_peer(to, *unwrapped, from, size_bytes, stream); });
}

DeviceResult<void> FaultDevice::do_fill(DeviceAddress to,
                                        std::uint8_t value,
                                        std::uint64_t size_bytes,
                                        StreamId stream) {
  return pass<void>(Call::kFill, [&] { return inner_.fill(to, value, size_bytes, stream); });
}

DeviceResult<void> FaultDevice::do_enqueue_host(StreamId stream, HostTask task) {
  return pass<void>(Call::kEnqueueHost, [&] { return inner_.enqueue_host(stream, task); });
}

DeviceResult<void*> FaultDevice::do_allocate_pinned(std::uint64_t size_bytes) {
  return pass<void*>(Call::kAllocatePinned, [&] { return inner_.allocate_pinned(size_bytes); });
}

DeviceResult<void> FaultDevice::do_free_pinned(void* pointer) {
  return pass<void>(Call::kFreePinned, [&] { return inner_.free_pinned(pointer); });
}

DeviceResult<MemoryInfo> FaultDevice::do_memory_info() {
  return pass<MemoryInfo>(Call::kMemoryInfo, [&] { return inner_.memory_info(); });
}

DeviceResult<std::vector<ProcessMemory>> FaultDevice::do_processes() {
  return pass<std::vector<ProcessMemory>>(Call::kProcesses, [&] { return inner_.processes(); });
}

DeviceResult<std::vector<MemoryLevel>> FaultDevice::do_measure() {
  return pass<std::vector<MemoryLevel>>(Call::kMeasure, [&] { return inner_.measure(); });
}

void FaultDevice::do_block_allocated(DeviceAddress address,
                                     std::uint64_t size_bytes,
                                     StreamId stream) noexcept {
  inner_.block_allocated(address, size_bytes, stream);
}

void FaultDevice::do_block_freed(DeviceAddress address,
                                 std::uint64_t size_bytes,
                                 StreamId stream) noexcept {
  inner_.block_freed(address, size_bytes, stream);
}

}  // namespace headroom::device
