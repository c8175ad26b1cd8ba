#include "headroom/device/device.h"

#include <optional>
#include <utility>

#include "headroom/base/check.h"
#include "headroom/base/checked.h"
#include "headroom/device/internal/guarded.h"
#include "headroom/device/internal/status.h"

namespace headroom::device {
namespace {

using internal::fail;

constexpr std::array<const char*, kCallCount> kCallNames{"allocate_segment",
                                                         "free_segment",
                                                         "reserve_addresses",
                                                         "release_addresses",
                                                         "create_pages",
                                                         "release_pages",
                                                         "map_pages",
                                                         "unmap_pages",
                                                         "create_stream",
                                                         "adopt_stream",
                                                         "native_stream",
                                                         "release_stream",
                                                         "synchronize_stream",
                                                         "is_capturing",
                                                         "record_event",
                                                         "query_event",
                                                         "wait_event",
                                                         "synchronize_event",
                                                         "elapsed_ms",
                                                         "release_event",
                                                         "copy_to_device",
                                                         "copy_to_host",
                                                         "copy_within",
                                                         "copy_peer",
                                                         "fill",
                                                         "enqueue_host",
                                                         "allocate_pinned",
                                                         "free_pinned",
                                                         "memory_info",
                                                         "processes",
                                                         "measure"};

DeviceResult<void> check_size(std::uint64_t size_bytes) noexcept {
  if (size_bytes == 0) return fail(StatusCode::kInvalidArgument, "a size of zero");
  if (size_bytes >= kAbsurdSize) {
    return fail(StatusCode::kOutOfMemory, "a size of 1 EiB or more", size_bytes, kAbsurdSize);
  }
  return {};
}

DeviceResult<void> check_pages(std::uint64_t size_bytes, std::uint64_t granularity) noexcept {
  if (auto size = check_size(size_bytes); !size) return size;
  if (size_bytes % granularity != 0) {
    return fail(StatusCode::kInvalidArgument,
                "not a multiple of the device's granularity",
                size_bytes,
                granularity);
  }
  return {};
}

}  // namespace

const char* to_string(Call call) noexcept { return kCallNames[static_cast<std::size_t>(call)]; }

Device::Device(Properties properties) : properties_(std::move(properties)) {}

Device::~Device() { detach(); }

Attachment& Device::attach(std::unique_ptr<Attachment> attachment) noexcept {
  Attachment* const kept = attachment.release();
  [[maybe_unused]] const Attachment* before = attachment_.exchange(kept, std::memory_order_acq_rel);
  HEADROOM_ASSERT(before == nullptr, "a device has one attachment");
  return *kept;
}

void Device::detach() noexcept {
  Attachment* const kept = attachment_.exchange(nullptr, std::memory_order_acq_rel);
  if (!is_forked()) delete kept;
}

std::uint64_t Device::calls(Call call) const noexcept {
  return calls_[static_cast<std::size_t>(call)].load(std::memory_order_relaxed);
}

template <class T, class Body>
DeviceResult<T> Device::perform(Call call, std::uint64_t weight, Body&& body) noexcept {
  calls_[static_cast<std::size_t>(call)].fetch_add(weight, std::memory_order_relaxed);
  return internal::guarded<T>(to_string(call), is_forked(), std::forward<Body>(body));
}

DeviceResult<void> Device::check_ranges(std::initializer_list<DeviceAddress> starts,
                                        std::uint64_t size_bytes) noexcept {
  if (auto size = check_size(size_bytes); !size) return size;
  for (const DeviceAddress start : starts) {
    if (!checked_add(start, size_bytes) || !owns_range(start, size_bytes)) {
      return fail(StatusCode::kInvalidArgument,
                  "the range is not inside live memory of this device; address and size",
                  start,
                  size_bytes);
    }
  }
  return {};
}

DeviceResult<DeviceAddress> Device::allocate_segment(std::uint64_t size_bytes) noexcept {
  return perform<DeviceAddress>(Call::kAllocateSegment, 1, [&]() -> DeviceResult<DeviceAddress> {
    if (auto size = check_size(size_bytes); !size) return Unexpected(size.error());
    return do_allocate_segment(size_bytes);
  });
}

DeviceResult<void> Device::free_segment(DeviceAddress address) noexcept {
  return perform<void>(Call::kFreeSegment, 1, [&] { return do_free_segment(address); });
}

DeviceResult<DeviceAddress> Device::reserve_addresses(std::uint64_t size_bytes) noexcept {
  return perform<DeviceAddress>(Call::kReserveAddresses, 1, [&]() -> DeviceResult<DeviceAddress> {
    if (auto size = check_pages(size_bytes, properties_.granularity_bytes); !size) {
      return Unexpected(size.error());
    }
    return do_reserve_addresses(size_bytes);
  });
}

DeviceResult<void> Device::release_addresses(DeviceAddress address) noexcept {
  return perform<void>(Call::kReleaseAddresses, 1, [&] { return do_release_addresses(address); });
}

DeviceResult<PageHandle> Device::create_pages(std::uint64_t size_bytes,
                                              PageOptions options) noexcept {
  return perform<PageHandle>(Call::kCreatePages, 1, [&]() -> DeviceResult<PageHandle> {
    if (auto size = check_pages(size_bytes, properties_.granularity_bytes); !size) {
      return Unexpected(size.error());
    }
    return do_create_pages(size_bytes, options);
  });
}

DeviceResult<void> Device::release_pages(PageHandle handle) noexcept {
  return perform<void>(Call::kReleasePages, 1, [&] { return do_release_pages(handle); });
}

DeviceResult<void> Device::map_pages(DeviceAddress address,
                                     std::span<const PageHandle> handles) noexcept {
  return perform<void>(Call::kMapPages, handles.size(), [&]() -> DeviceResult<void> {
    if (handles.empty()) return fail(StatusCode::kInvalidArgument, "no handles");
    return do_map_pages(address, handles);
  });
}

DeviceResult<std::uint64_t> Device::unmap_pages(DeviceAddress address,
                                                std::uint64_t size_bytes) noexcept {
  const auto unmapped =
      perform<std::uint64_t>(Call::kUnmapPages, 1, [&]() -> DeviceResult<std::uint64_t> {
        if (auto size = check_pages(size_bytes, properties_.granularity_bytes); !size) {
          return Unexpected(size.error());
        }
        return do_unmap_pages(address, size_bytes);
      });
  // How many there are is known only now; one is counted already.
  if (unmapped && *unmapped > 1) {
    calls_[static_cast<std::size_t>(Call::kUnmapPages)].fetch_add(*unmapped - 1,
                                                                  std::memory_order_relaxed);
  }
  return unmapped;
}

DeviceResult<StreamId> Device::create_stream(StreamOptions options) noexcept {
  return perform<StreamId>(Call::kCreateStream, 1, [&] { return do_create_stream(options); });
}

DeviceResult<StreamId> Device::adopt_stream(NativeStream native, StreamLife life) noexcept {
  return perform<StreamId>(Call::kAdoptStream, 1, [&] { return do_adopt_stream(native, life); });
}

DeviceResult<NativeStream> Device::native_stream(StreamId stream) noexcept {
  return perform<NativeStream>(Call::kNativeStream, 1, [&] { return do_native_stream(stream); });
}

DeviceResult<void> Device::release_stream(StreamId stream) noexcept {
  return perform<void>(Call::kReleaseStream, 1, [&]() -> DeviceResult<void> {
    if (stream == StreamId::kDefault) {
      return fail(StatusCode::kInvalidArgument, "the default stream cannot be released");
    }
    return do_release_stream(stream);
  });
}

DeviceResult<void> Device::synchronize_stream(StreamId stream) noexcept {
  return perform<void>(Call::kSynchronizeStream, 1, [&] { return do_synchronize_stream(stream); });
}

DeviceResult<bool> Device::is_capturing(StreamId stream) noexcept {
  return perform<bool>(Call::kIsCapturing, 1, [&] { return do_is_capturing(stream); });
}

DeviceResult<EventId> Device::record_event(StreamId stream, EventOptions options) noexcept {
  return perform<EventId>(Call::kRecordEvent, 1, [&] { return do_record_event(stream, options); });
}

DeviceResult<bool> Device::query_event(EventId event) noexcept {
  return perform<bool>(Call::kQueryEvent, 1, [&] { return do_query_event(event); });
}

DeviceResult<void> Device::wait_event(StreamId stream, EventId event) noexcept {
  return perform<void>(Call::kWaitEvent, 1, [&] { return do_wait_event(stream, event); });
}

DeviceResult<void> Device::synchronize_event(EventId event) noexcept {
  return perform<void>(Call::kSynchronizeEvent, 1, [&] { return do_synchronize_event(event); });
}

DeviceResult<double> Device::elapsed_ms(EventId begin, EventId end) noexcept {
  return perform<double>(Call::kElapsed, 1, [&] { return do_elapsed_ms(begin, end); });
}

DeviceResult<void> Device::release_event(EventId event) noexcept {
  return perform<void>(Call::kReleaseEvent, 1, [&] { return do_release_event(event); });
}

DeviceResult<void> Device::copy_to_device(DeviceAddress to,
                                          const void* from,
                                          std::uint64_t size_bytes,
                                          StreamId stream) noexcept {
  return perform<void>(Call::kCopyToDevice, 1, [&]() -> DeviceResult<void> {
    if (from == nullptr) return fail(StatusCode::kInvalidArgument, "a null host pointer");
    if (auto ranges = check_ranges({to}, size_bytes); !ranges) return ranges;
    return do_copy_to_device(to, from, size_bytes, stream);
  });
}

DeviceResult<void> Device::copy_to_host(void* to,
                                        DeviceAddress from,
                                        std::uint64_t size_bytes,
                                        StreamId stream) noexcept {
  return perform<void>(Call::kCopyToHost, 1, [&]() -> DeviceResult<void> {
    if (to == nullptr) return fail(StatusCode::kInvalidArgument, "a null host pointer");
    if (auto ranges = check_ranges({from}, size_bytes); !ranges) return ranges;
    return do_copy_to_host(to, from, size_bytes, stream);
  });
}

DeviceResult<void> Device::copy_within(DeviceAddress to,
                                       DeviceAddress from,
                                       std::uint64_t size_bytes,
                                       StreamId stream) noexcept {
  return perform<void>(Call::kCopyWithin, 1, [&]() -> DeviceResult<void> {
    if (auto ranges = check_ranges({to, from}, size_bytes); !ranges) return ranges;
    return do_copy_within(to, from, size_bytes, stream);
  });
}

DeviceResult<void> Device::copy_peer(DeviceAddress to,
                                     Device& source,
                                     DeviceAddress from,
                                     std::uint64_t size_bytes,
                                     StreamId stream) noexcept {
  return perform<void>(Call::kCopyPeer, 1, [&]() -> DeviceResult<void> {
    if (source.id().kind != id().kind) {
      return fail(StatusCode::kNotSupported, "the devices are of different kinds");
    }
    if (auto ranges = check_ranges({to}, size_bytes); !ranges) return ranges;
    if (auto ranges = source.check_ranges({from}, size_bytes); !ranges) return ranges;
    return do_copy_peer(to, source, from, size_bytes, stream);
  });
}

DeviceResult<void> Device::fill(DeviceAddress to,
                                std::uint8_t value,
                                std::uint64_t size_bytes,
                                StreamId stream) noexcept {
  return perform<void>(Call::kFill, 1, [&]() -> DeviceResult<void> {
    if (auto ranges = check_ranges({to}, size_bytes); !ranges) return ranges;
    return do_fill(to, value, size_bytes, stream);
  });
}

DeviceResult<void> Device::enqueue_host(StreamId stream, HostTask task) noexcept {
  return perform<void>(Call::kEnqueueHost, 1, [&]() -> DeviceResult<void> {
    if (task.run == nullptr) return fail(StatusCode::kInvalidArgument, "a null function");
    return do_enqueue_host(stream, task);
  });
}

DeviceResult<void*> Device::allocate_pinned(std::uint64_t size_bytes) noexcept {
  return perform<void*>(Call::kAllocatePinned, 1, [&]() -> DeviceResult<void*> {
    if (auto size = check_size(size_bytes); !size) return Unexpected(size.error());
    return do_allocate_pinned(size_bytes);
  });
}

DeviceResult<void> Device::free_pinned(void* pointer) noexcept {
  return perform<void>(Call::kFreePinned, 1, [&] { return do_free_pinned(pointer); });
}

DeviceResult<MemoryInfo> Device::memory_info() noexcept {
  return perform<MemoryInfo>(Call::kMemoryInfo, 1, [&] { return do_memory_info(); });
}

DeviceResult<std::vector<ProcessMemory>> Device::processes() noexcept {
  return perform<std::vector<ProcessMemory>>(Call::kProcesses, 1, [&] { return do_processes(); });
}

DeviceResult<std::vector<MemoryLevel>> Device::measure() noexcept {
  return perform<std::vector<MemoryLevel>>(Call::kMeasure, 1, [&] { return do_measure(); });
}

std::chrono::nanoseconds Device::now() const noexcept {
  return std::chrono::steady_clock::now().time_since_epoch();
}

void Device::block_allocated(DeviceAddress address,
                             std::uint64_t size_bytes,
                             StreamId stream) noexcept {
  if (tracks_blocks_ && !is_forked()) do_block_allocated(address, size_bytes, stream);
}

void Device::block_freed(DeviceAddress address,
                         std::uint64_t size_bytes,
                         StreamId stream) noexcept {
  if (tracks_blocks_ && !is_forked()) do_block_freed(address, size_bytes, stream);
}

}  // namespace headroom::device
