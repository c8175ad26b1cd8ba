// The streams and events of a MetaDevice, and the work in their order: all of it is checked, and
// none of it moves a byte.
#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "headroom/device/internal/ids.h"
#include "headroom/device/meta/internal/device_state.h"

namespace headroom::device {

using internal::EventRecord;
using internal::fail;
using internal::guarded;
using internal::PinnedMemory;

// --- Streams and events -----------------------------------------------------------------------

DeviceResult<StreamId> MetaDevice::do_create_stream(StreamOptions /*options*/) {
  const std::lock_guard lock(state_->mutex);
  // An adopted stream may have any number.
  for (;;) {
    const auto stream = static_cast<StreamId>(internal::next_id());
    if (state_->streams.try_emplace(stream).second) return stream;
  }
}

DeviceResult<StreamId> MetaDevice::do_adopt_stream(NativeStream native, StreamLife /*life*/) {
  const auto stream = static_cast<StreamId>(native);
  const std::lock_guard lock(state_->mutex);
  state_->streams[stream].is_released = false;
  return stream;
}

DeviceResult<NativeStream> MetaDevice::do_native_stream(StreamId stream) {
  const std::lock_guard lock(state_->mutex);
  if (const auto live = state_->live_stream(stream); !live) return Unexpected(live.error());
  return to_integer(stream);
}

DeviceResult<void> MetaDevice::do_release_stream(StreamId stream) {
  const std::lock_guard lock(state_->mutex);
  const auto live = state_->live_stream(stream);
  if (!live) return Unexpected(live.error());
  const auto oldest = state_->departed.add(stream);
  (*live)->is_released = true;
  if (oldest) state_->forget(*oldest);
  return {};
}

DeviceResult<void> MetaDevice::do_synchronize_stream(StreamId stream) {
  const std::lock_guard lock(state_->mutex);
  const auto live = state_->live_stream(stream);
  if (!live) return Unexpected(live.error());
  (*live)->completed = (*live)->recorded;
  return {};
}

DeviceResult<bool> MetaDevice::do_is_capturing(StreamId stream) {
  if (auto accepted = state_->accept_work(stream); !accepted) return Unexpected(accepted.error());
  return false;
}

DeviceResult<EventId> MetaDevice::do_record_event(StreamId stream, EventOptions options) {
  const std::chrono::nanoseconds time = now();
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto it = s.streams.find(stream);  // a released one will do
  if (it == s.streams.end()) {
    return fail(StatusCode::kUnknownHandle, "not a stream of this device", to_integer(stream));
  }
  if (options.is_timed && it->second.is_released) {
    return fail(StatusCode::kUnknownHandle,
                "a timed event needs a stream that was not released",
                to_integer(stream));
  }
  const auto event = static_cast<EventId>(internal::next_id());
  EventRecord record{.stream = stream, .position = it->second.recorded + 1};
  if (options.is_timed) record.time = time;
  s.events.emplace(event, record);
  ++it->second.recorded;
  if (s.options.events == EventCompletion::kAtOnce) it->second.completed = it->second.recorded;
  return event;
}

DeviceResult<bool> MetaDevice::do_query_event(EventId event) {
  const std::lock_guard lock(state_->mutex);
  const auto record = state_->event(event);
  if (!record) return Unexpected(record.error());
  return state_->is_complete(*record);
}

DeviceResult<void> MetaDevice::do_wait_event(StreamId stream, EventId event) {
  const std::lock_guard lock(state_->mutex);
  if (const auto live = state_->live_stream(stream); !live) return Unexpected(live.error());
  if (const auto record = state_->event(event); !record) return Unexpected(record.error());
  return {};
}

DeviceResult<void> MetaDevice::do_synchronize_event(EventId event) {
  const std::lock_guard lock(state_->mutex);
  return state_->complete_up_to(event);
}

DeviceResult<double> MetaDevice::do_elapsed_ms(EventId begin, EventId end) {
  const std::lock_guard lock(state_->mutex);
  const auto first = state_->event(begin);
  if (!first) return Unexpected(first.error());
  const auto last = state_->event(end);
  if (!last) return Unexpected(last.error());
  if (!first->time || !last->time) return internal::not_timed();
  for (const EventId event : {begin, end}) {
    if (auto passed = state_->complete_up_to(event); !passed) return Unexpected(passed.error());
  }
  return std::chrono::duration<double, std::milli>(*last->time - *first->time).count();
}

DeviceResult<void> MetaDevice::do_release_event(EventId event) {
  const std::lock_guard lock(state_->mutex);
  if (const auto record = state_->event(event); !record) return Unexpected(record.error());
  state_->events.erase(event);
  return {};
}

DeviceResult<void> MetaDevice::complete_events(StreamId stream) noexcept {
  return guarded<void>("complete_events", is_forked(), [&]() -> DeviceResult<void> {
    const std::lock_guard lock(state_->mutex);
    const auto it = state_->streams.find(stream);
    if (it == state_->streams.end()) {
      return fail(StatusCode::kUnknownHandle, "not a stream of this device", to_integer(stream));
    }
    it->second.completed = it->second.recorded;
    return {};
  });
}

DeviceResult<void> MetaDevice::complete_event(EventId event) noexcept {
  return guarded<void>("complete_event", is_forked(), [&] {
    const std::lock_guard lock(state_->mutex);
    return state_->complete_up_to(event);
  });
}

// --- Work in stream order ---------------------------------------------------------------------

DeviceResult<void> MetaDevice::do_copy_to_device(DeviceAddress /*to*/,
                                                 const void* /*from*/,
                                                 std::uint64_t /*size_bytes*/,
                                                 StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_copy_to_host(void* /*to*/,
                                               DeviceAddress /*from*/,
                                               std::uint64_t /*size_bytes*/,
                                               StreamId stream) {
  if (auto accepted = state_->accept_work(stream); !accepted) return accepted;
  return fail(StatusCode::kNotSupported, "a meta device has addresses only, no values to copy");
}

DeviceResult<void> MetaDevice::do_copy_within(DeviceAddress /*to*/,
                                              DeviceAddress /*from*/,
                                              std::uint64_t /*size_bytes*/,
                                              StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_copy_peer(DeviceAddress /*to*/,
                                            Device& /*source*/,
                                            DeviceAddress /*from*/,
                                            std::uint64_t /*size_bytes*/,
                                            StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_fill(DeviceAddress /*to*/,
                                       std::uint8_t /*value*/,
                                       std::uint64_t /*size_bytes*/,
                                       StreamId stream) {
  return state_->accept_work(stream);
}

DeviceResult<void> MetaDevice::do_enqueue_host(StreamId stream, HostTask task) {
  if (auto accepted = state_->accept_work(stream); !accepted) return accepted;
  task.run(task.data);  // without the lock: it may call the device
  return {};
}

DeviceResult<void*> MetaDevice::do_allocate_pinned(std::uint64_t size_bytes) {
  PinnedMemory memory(::operator new(size_bytes, internal::kPinnedAlignment, std::nothrow));
  if (memory == nullptr) {
    return fail(StatusCode::kOutOfHostMemory, "the host has no such memory", size_bytes);
  }
  void* const pointer = memory.get();
  const std::lock_guard lock(state_->mutex);
  state_->pinned.emplace(pointer, std::move(memory));
  return pointer;
}

DeviceResult<void> MetaDevice::do_free_pinned(void* pointer) {
  const std::lock_guard lock(state_->mutex);
  if (state_->pinned.erase(pointer) == 0) {
    return fail(StatusCode::kUnknownHandle, "not pinned memory of this device, or freed");
  }
  return {};
}

}  // namespace headroom::device
