#include "headroom/device/cpu/internal/stream_table.h"

#include <array>
#include <new>
#include <system_error>
#include <utility>

#include "headroom/device/cpu/internal/bytes.h"
#include "headroom/device/cpu/internal/process.h"
#include "headroom/device/internal/ids.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

Unexpected<DeviceStatus> unknown_stream(StreamId stream) noexcept {
  return fail(
      StatusCode::kUnknownHandle, "not a stream of this device, or released", to_integer(stream));
}

// One that was made here is known outside by its address, as a driver's is.
NativeStream address_of(const CpuStream& stream) noexcept {
  return reinterpret_cast<NativeStream>(&stream);
}

}  // namespace

StreamTable::~StreamTable() {
  for (const auto& stream : threads_) stream->close();
  for (const auto& stream : threads_) stream->join();
}

DeviceResult<StreamId> StreamTable::create() {
  join_ended();
  const std::scoped_lock lock(mutex_);
  return create(NativeStream{0});
}

// Requires mutex_.
DeviceResult<StreamId> StreamTable::create(NativeStream native) {
  if (cpu_process().is_shutting_down.load(std::memory_order_acquire)) {
    return fail(StatusCode::kShutDown, "the process is ending");
  }
  const auto id = static_cast<StreamId>(next_id());
  // Everything that can fail for lack of memory comes before the thread.
  threads_.reserve(threads_.size() + 1);
  const auto entry = entries_.emplace(id, Entry{.stream = nullptr, .native = native}).first;
  try {
    entry->second.stream = std::make_shared<CpuStream>(device_index_, id);
  } catch (const std::system_error& error) {
    entries_.erase(entry);
    return fail(
        StatusCode::kFailed, "the system gives no more threads", 0, 0, error.code().value());
  } catch (...) {
    entries_.erase(entry);
    throw;
  }
  threads_.push_back(entry->second.stream);
  return id;
}

// The cpu device has no driver whose streams could be adopted. A number from outside stands for a
// queue of its own, so that what integrates with streams made elsewhere can be tested here.
DeviceResult<StreamId> StreamTable::adopt(NativeStream native) {
  if (native == 0) return StreamId::kDefault;
  join_ended();
  const std::scoped_lock lock(mutex_);
  if (const auto known = adopted_.find(native); known != adopted_.end()) return known->second;
  for (const auto& stream : threads_) {
    const Entry& entry = entries_.find(stream->id())->second;
    if (address_of(*stream) == native && entry.native == 0 && !entry.is_released) {
      return stream->id();
    }
  }
  const auto place = adopted_.emplace(native, StreamId::kDefault).first;
  auto made = create(native);
  if (made) {
    place->second = *made;
  } else {
    adopted_.erase(place);
  }
  return made;
}

DeviceResult<void> StreamTable::release(StreamId stream) {
  join_ended();
  const std::scoped_lock lock(mutex_);
  const auto entry = entries_.find(stream);
  if (entry == entries_.end() || entry->second.is_released) return unknown_stream(stream);
  entry->second.is_released = true;
  if (entry->second.native != 0) adopted_.erase(entry->second.native);
  entry->second.stream->close();
  return {};
}

// A thread that has ended is joined by whoever next makes or releases a stream.
void StreamTable::join_ended() {
  std::vector<std::shared_ptr<CpuStream>> ended;
  {
    const std::scoped_lock lock(mutex_);
    ended.reserve(threads_.size());
    std::erase_if(threads_, [&](const std::shared_ptr<CpuStream>& stream) {
      if (!stream->has_ended()) return false;
      entries_.find(stream->id())->second.stream.reset();
      ended.push_back(stream);
      if (const auto oldest = departed_.add(stream->id())) entries_.erase(*oldest);
      return true;
    });
  }
  for (const auto& stream : ended) stream->join();
}

DeviceResult<std::shared_ptr<CpuStream>> StreamTable::find_live(StreamId stream) const {
  const std::scoped_lock lock(mutex_);
  const auto entry = entries_.find(stream);
  if (entry == entries_.end() || entry->second.is_released) return unknown_stream(stream);
  return entry->second.stream;
}

DeviceResult<void> StreamTable::check_is_live(StreamId stream) const {
  if (stream == StreamId::kDefault) return {};
  if (const auto found = find_live(stream); !found) return Unexpected(found.error());
  return {};
}

DeviceResult<void> StreamTable::synchronize(StreamId stream) {
  if (stream == StreamId::kDefault) return {};
  const auto found = find_live(stream);
  if (!found) return Unexpected(found.error());
  const auto position = (*found)->position();
  if (!position) return Unexpected(position.error());
  return (*found)->wait_until_passed(*position);
}

DeviceResult<NativeStream> StreamTable::native(StreamId stream) const {
  if (stream == StreamId::kDefault) return NativeStream{0};
  const std::scoped_lock lock(mutex_);
  const auto entry = entries_.find(stream);
  if (entry == entries_.end() || entry->second.is_released) return unknown_stream(stream);
  return entry->second.native != 0 ? entry->second.native : address_of(*entry->second.stream);
}

DeviceResult<EventId> StreamTable::record(StreamId stream) {
  const std::scoped_lock lock(mutex_);
  Event event;
  if (stream != StreamId::kDefault) {
    const auto entry = entries_.find(stream);
    if (entry == entries_.end()) {
      return fail(StatusCode::kUnknownHandle, "not a stream of this device", to_integer(stream));
    }
    event.stream = entry->second.stream;
    if (event.stream != nullptr) {
      const auto position = event.stream->position();
      if (!position) return Unexpected(position.error());
      event.position = *position;
    }
  }
  const auto id = static_cast<EventId>(next_id());
  events_.emplace(id, std::move(event));
  return id;
}

DeviceResult<EventId> StreamTable::record_timed(StreamId stream) {
  auto time = std::make_shared<std::atomic<std::int64_t>>(0);
  if (auto queued = submit(stream, TimeTask{time}); !queued) return Unexpected(queued.error());
  const auto event = record(stream);
  if (!event) return event;
  const std::scoped_lock lock(mutex_);
  events_.at(*event).time_ns = std::move(time);
  return event;
}

DeviceResult<double> StreamTable::elapsed_ms(EventId begin, EventId end) {
  std::array<std::int64_t, 2> times{};
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto found = find(i == 0 ? begin : end);
    if (!found) return Unexpected(found.error());
    if (found->time_ns == nullptr) return not_timed();
    if (!found->has_passed()) {
      if (auto passed = found->stream->wait_until_passed(found->position); !passed) {
        return Unexpected(passed.error());
      }
    }
    times[i] = found->time_ns->load(std::memory_order_acquire);
  }
  return static_cast<double>(times[1] - times[0]) / 1e6;
}

DeviceResult<StreamTable::Event> StreamTable::find(EventId event) const {
  const std::scoped_lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    return fail(
        StatusCode::kUnknownHandle, "not an event of this device, or released", to_integer(event));
  }
  return found->second;
}

DeviceResult<bool> StreamTable::query(EventId event) {
  const auto found = find(event);
  if (!found) return Unexpected(found.error());
  if (found->has_passed()) return true;
  if (cpu_process().is_shutting_down.load(std::memory_order_acquire)) {
    return fail(StatusCode::kShutDown, "the process is ending; the event will never complete");
  }
  return false;
}

DeviceResult<void> StreamTable::make_wait(StreamId stream, EventId event) {
  if (auto live = check_is_live(stream); !live) return live;
  auto found = find(event);
  if (!found) return Unexpected(found.error());
  // Work queued from now on is ordered after this call, and so after the event.
  if (found->has_passed()) return {};
  return submit(stream, WaitTask{.stream = std::move(found->stream), .position = found->position});
}

DeviceResult<void> StreamTable::synchronize(EventId event) {
  const auto found = find(event);
  if (!found) return Unexpected(found.error());
  if (found->has_passed()) return {};
  return found->stream->wait_until_passed(found->position);
}

DeviceResult<void> StreamTable::release(EventId event) {
  const std::scoped_lock lock(mutex_);
  if (events_.erase(event) == 0) {
    return fail(
        StatusCode::kUnknownHandle, "not an event of this device, or released", to_integer(event));
  }
  return {};
}

DeviceResult<void> StreamTable::submit(StreamId stream, Task task) {
  if (stream == StreamId::kDefault) return run_task(task);
  const auto found = find_live(stream);
  if (!found) return Unexpected(found.error());
  return (*found)->enqueue(std::move(task));
}

void StreamTable::submit_poison(StreamId stream, PoisonTask task) noexcept {
  try {
    if (submit(stream, task)) return;
  } catch (const std::bad_alloc&) {
    // Handled as a stream that takes no more.
  }
  if (!task.is_poison) unpoison_bytes(task.from, task.size_bytes);
}

void StreamTable::keep_until_passed(const std::shared_ptr<void>& kept) {
  const std::scoped_lock lock(mutex_);
  for (const auto& stream : threads_) stream->keep_behind(kept);
}

bool StreamTable::has_threads() const {
  const std::scoped_lock lock(mutex_);
  return !threads_.empty();
}

}  // namespace headroom::device::internal
