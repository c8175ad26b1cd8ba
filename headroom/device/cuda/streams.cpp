#include "headroom/device/cuda/internal/streams.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "headroom/device/internal/ids.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

constexpr std::uint64_t kFlagPageBytes = 4096;
constexpr std::uint64_t kFlagStrideBytes = 64;  // a cache line each
constexpr std::uint64_t kFlagsOfAPage = kFlagPageBytes / kFlagStrideBytes;

CUstream to_stream(NativeStream native) noexcept { return reinterpret_cast<CUstream>(native); }

}  // namespace

// --- Events of the driver ----------------------------------------------------------------------

DeviceResult<std::shared_ptr<CudaEventPool::Event>> CudaEventPool::take() {
  CUevent native = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (!unused_.empty()) {
      native = unused_.back();
      unused_.pop_back();
    } else {
      unused_.reserve(++made_);  // so that giving back cannot fail
    }
  }
  if (native == nullptr) {
    if (auto made = context_.call(context_.driver().cuEventCreate, &native, unsigned{flags_});
        !made) {
      return Unexpected(made.error());
    }
  }
  try {
    return std::make_shared<Event>(*this, native);
  } catch (...) {
    give_back(native);
    throw;
  }
}

void CudaEventPool::give_back(CUevent event) noexcept {
  const std::scoped_lock lock(mutex_);
  unused_.push_back(event);
}

void CudaEventPool::clear() noexcept {
  const std::scoped_lock lock(mutex_);
  for (CUevent event : unused_) (void)context_.driver().cuEventDestroy(event);
  unused_.clear();
}

// --- Streams -----------------------------------------------------------------------------------

CudaStreams::Stream::~Stream() {
  if (tasks != nullptr) tasks->stop();
  if (!is_owned) return;
  const CudaScope scope(context, CaptureMode::kRelaxed);
  // Queued work still runs; the driver keeps the stream until then.
  if (scope) (void)context.driver().cuStreamDestroy(native);
}

CudaStreams::CudaStreams(CudaContext& context, bool owns_default)
    : context_(context),
      owns_default_(owns_default),
      pool_(context, CU_EVENT_DISABLE_TIMING),
      timed_pool_(context, CU_EVENT_DEFAULT) {
  if (owns_default_) return;  // made when it is first used: it needs the context
  entries_[StreamId::kDefault].stream = std::make_shared<Stream>(context_, CU_STREAM_LEGACY, false);
}

// Requires a scope. Not blocking: it does not wait for the legacy default stream, nor that for it.
// The driver moves a priority that it does not have to the nearest.
DeviceResult<std::shared_ptr<CudaStreams::Stream>> CudaStreams::make_stream(int priority) {
  CUstream native = nullptr;
  if (auto made = context_.call(context_.driver().cuStreamCreateWithPriority,
                                &native,
                                unsigned{CU_STREAM_NON_BLOCKING},
                                priority);
      !made) {
    return Unexpected(made.error());
  }
  try {
    return std::make_shared<Stream>(context_, native, true);
  } catch (...) {
    (void)context_.call(context_.driver().cuStreamDestroy, native);
    throw;
  }
}

DeviceResult<void> CudaStreams::make_default() {
  {
    const std::scoped_lock lock(mutex_);
    if (entries_[StreamId::kDefault].stream != nullptr) return {};
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  auto made = make_stream(0);
  if (!made) return Unexpected(made.error());
  const std::scoped_lock lock(mutex_);
  if (auto& own = entries_[StreamId::kDefault].stream; own == nullptr) own = *std::move(made);
  return {};
}

DeviceResult<std::shared_ptr<CudaStreams::Stream>> CudaStreams::find_live(StreamId stream) {
  if (owns_default_ && stream == StreamId::kDefault) {
    if (auto made = make_default(); !made) return Unexpected(made.error());
  }
  const std::scoped_lock lock(mutex_);
  const auto it = entries_.find(stream);
  if (it == entries_.end() || it->second.stream == nullptr) {
    return fail(
        StatusCode::kUnknownHandle, "not a stream of this device, or released", to_integer(stream));
  }
  return it->second.stream;
}

// Requires a scope.
DeviceResult<StreamId> CudaStreams::add(std::shared_ptr<Stream> stream) {
  unsigned long long driver_id = 0;
  if (auto asked = context_.call(context_.driver().cuStreamGetId, stream->native, &driver_id);
      !asked) {
    return Unexpected(asked.error());
  }
  retire_earlier(stream->native, driver_id);
  const std::scoped_lock lock(mutex_);
  if (const auto known = by_driver_id_.find(driver_id); known != by_driver_id_.end()) {
    if (stream->is_lasting) entries_.at(known->second).stream->is_lasting = true;
    return known->second;
  }
  StreamId& of_handle = by_handle_.try_emplace(stream->native, StreamId::kDefault).first->second;
  if (of_handle != StreamId::kDefault && entries_.at(of_handle).driver_id == 0) {
    by_driver_id_.emplace(driver_id, of_handle);
    entries_.at(of_handle).driver_id = driver_id;
    return of_handle;
  }
  const auto id = static_cast<StreamId>(next_id());
  const auto entry =
      entries_.emplace(id, Entry{.stream = std::move(stream), .driver_id = driver_id});
  try {
    by_driver_id_.emplace(driver_id, id);
  } catch (...) {
    entries_.erase(entry.first);
    throw;
  }
  of_handle = id;
  return id;
}

// The driver has given the handle of a stream to another one, so the first was destroyed without a
// word. From now on it counts as released. Requires a scope.
void CudaStreams::retire_earlier(CUstream handle, unsigned long long driver_id) {
  const auto find_earlier = [&]() -> std::optional<StreamId> {  // requires mutex_
    const auto known = by_handle_.find(handle);
    if (known == by_handle_.end() || known->second == StreamId::kDefault) return std::nullopt;
    const Entry& entry = entries_.at(known->second);
    const bool is_other = entry.driver_id != 0 && entry.driver_id != driver_id;
    return is_other && entry.stream != nullptr ? std::optional(known->second) : std::nullopt;
  };
  {
    const std::scoped_lock lock(mutex_);
    if (!find_earlier()) return;
  }
  forget_drained();
  auto last = record_on_context();
  if (!last) return;             // during a capture, say: the next adoption tries again
  std::shared_ptr<Stream> gone;  // given back after the lock
  const std::scoped_lock lock(mutex_);
  const auto earlier = find_earlier();
  if (!earlier) return;
  Entry& entry = entries_.at(*earlier);
  if (*last != nullptr) draining_.push_back(*earlier);
  by_driver_id_.erase(entry.driver_id);
  by_handle_.erase(handle);
  entry.last = *std::move(last);
  gone = std::move(entry.stream);
}

// A stream that captures a graph may not be asked for its number: until it is, its handle tells it
// apart, which nobody destroys meanwhile.
StreamId CudaStreams::add_captured(std::shared_ptr<Stream> stream) {
  const std::scoped_lock lock(mutex_);
  StreamId& of_handle = by_handle_.try_emplace(stream->native, StreamId::kDefault).first->second;
  if (of_handle == StreamId::kDefault) {
    const auto id = static_cast<StreamId>(next_id());
    entries_.emplace(id, Entry{.stream = std::move(stream)});
    of_handle = id;
  }
  return of_handle;
}

DeviceResult<StreamId> CudaStreams::create(StreamOptions options) {
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  forget_drained();
  auto made = make_stream(options.priority);
  if (!made) return Unexpected(made.error());
  return add(*std::move(made));
}

DeviceResult<StreamId> CudaStreams::adopt(NativeStream native, StreamLife life) {
  if (owns_default_) {
    const auto own = find_live(StreamId::kDefault);
    if (!own) return Unexpected(own.error());
    if (native == 0 || to_stream(native) == (*own)->native) return StreamId::kDefault;
  } else if (native == 0 || to_stream(native) == CU_STREAM_LEGACY) {
    return StreamId::kDefault;  // both are the legacy default stream
  }
  const auto ours = context_.get();
  if (!ours) return Unexpected(ours.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  auto stream = std::make_shared<Stream>(context_, to_stream(native), false);
  stream->is_lasting = life == StreamLife::kUntilReleased;
  const auto capturing = is_capturing(*stream);
  if (!capturing) return Unexpected(capturing.error());
  if (*capturing) return add_captured(std::move(stream));
  CUcontext theirs = nullptr;
  if (auto asked = context_.call(context_.driver().cuStreamGetCtx, to_stream(native), &theirs);
      !asked) {
    return Unexpected(asked.error());
  }
  if (theirs != *ours) {
    return fail(
        StatusCode::kInvalidArgument, "the stream is not of this device's primary context", native);
  }
  return add(std::move(stream));
}

DeviceResult<NativeStream> CudaStreams::native(StreamId stream) {
  const auto live = find_live(stream);
  if (!live) return Unexpected(live.error());
  return reinterpret_cast<NativeStream>((*live)->native);
}

DeviceResult<void> CudaStreams::release(StreamId stream) {
  const auto live = find_live(stream);
  if (!live) return Unexpected(live.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  std::shared_ptr<Event> last;
  if (scope) {
    forget_drained();
    const auto capturing = is_capturing(**live);
    if (capturing && *capturing) {
      return fail(StatusCode::kInvalidArgument, "the stream is capturing a graph");
    }
    auto recorded = record_on(**live);
    if (!recorded && recorded.error().code != StatusCode::kShutDown) {
      return Unexpected(recorded.error());
    }
    if (recorded) last = *std::move(recorded);
  } else if (scope.error().error().code != StatusCode::kShutDown) {
    return scope.error();
  }
  std::shared_ptr<Stream> gone;  // destroyed after the lock
  const std::scoped_lock lock(mutex_);
  const auto it = entries_.find(stream);
  if (it == entries_.end() || it->second.stream == nullptr) {
    return fail(StatusCode::kUnknownHandle, "released by another thread", to_integer(stream));
  }
  if (last != nullptr) draining_.push_back(stream);
  gone = std::move(it->second.stream);
  it->second.last = std::move(last);
  by_driver_id_.erase(it->second.driver_id);
  if (const auto handle = by_handle_.find(gone->native);
      handle != by_handle_.end() && handle->second == stream) {
    by_handle_.erase(handle);
  }
  return {};
}

DeviceResult<void> CudaStreams::synchronize(StreamId stream) {
  const auto live = find_live(stream);
  if (!live) return Unexpected(live.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  return context_.call(context_.driver().cuStreamSynchronize, (*live)->native);
}

DeviceResult<bool> CudaStreams::is_capturing(StreamId stream) {
  const auto live = find_live(stream);
  if (!live) return Unexpected(live.error());
  const CudaScope scope(context_);
  if (!scope) return scope.error();
  return is_capturing(**live);
}

// Requires a scope.
DeviceResult<bool> CudaStreams::is_capturing(const Stream& stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CudaDriver& driver = context_.driver();
  const CUresult result = driver.cuStreamIsCapturing(stream.native, &status);
  // The answer for the default stream while a stream that waits for it captures.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  if (auto asked = context_.check(result, driver.cuStreamIsCapturing.name); !asked) {
    return Unexpected(asked.error());
  }
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// --- Events ------------------------------------------------------------------------------------

// Requires a scope.
DeviceResult<std::shared_ptr<CudaStreams::Event>> CudaStreams::record_on(const Stream& stream,
                                                                         bool is_timed) {
  if (!stream.is_lasting && !is_timed) return record_on_context();
  auto event = (is_timed ? timed_pool_ : pool_).take();
  if (!event) return event;
  if (auto recorded =
          context_.call(context_.driver().cuEventRecord, (*event)->native(), stream.native);
      !recorded) {
    return Unexpected(recorded.error());
  }
  const auto captured = is_capturing(stream);
  (*event)->set_captured(captured && *captured);
  return event;
}

// For a stream that may have been destroyed: all that the context has queued is in front of the
// event, whichever stream it is in. Requires a scope.
DeviceResult<std::shared_ptr<CudaStreams::Event>> CudaStreams::record_on_context() {
  const CudaDriver& driver = context_.driver();
#if CUDA_VERSION >= 12050
  if (driver.cuCtxRecordEvent.pointer != nullptr) {
    const auto context = context_.get();
    if (!context) return Unexpected(context.error());
    auto event = pool_.take();
    if (!event) return event;
    if (auto recorded = context_.call(driver.cuCtxRecordEvent, *context, (*event)->native());
        !recorded) {
      return Unexpected(recorded.error());
    }
    return event;
  }
#endif
  if (auto waited = context_.call(driver.cuCtxSynchronize); !waited) {
    return Unexpected(waited.error());
  }
  return std::shared_ptr<Event>();  // has passed
}

// An event that belongs to a graph has not passed. Requires a scope in which asking is allowed.
DeviceResult<bool> CudaStreams::has_passed(const std::shared_ptr<Event>& event) {
  if (event == nullptr) return true;
  if (event->is_captured()) return false;
  const CudaDriver& driver = context_.driver();
  const CUresult result = driver.cuEventQuery(event->native());
  if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_CAPTURED_EVENT) return false;
  if (auto asked = context_.check(result, driver.cuEventQuery.name); !asked) {
    return Unexpected(asked.error());
  }
  return true;
}

// Gives back the events of released streams that have come to their end, the oldest first.
void CudaStreams::forget_drained() {
  for (;;) {
    StreamId stream{};
    std::shared_ptr<Event> last;
    {
      const std::scoped_lock lock(mutex_);
      if (draining_.empty()) return;
      stream = draining_.front();
      last = entries_.at(stream).last;
    }
    const auto passed = has_passed(last);
    if (!passed || !*passed) return;
    const std::scoped_lock lock(mutex_);
    if (draining_.empty() || draining_.front() != stream) continue;  // another thread was here
    const auto oldest = departed_.add(stream);
    entries_.at(stream).last = nullptr;
    draining_.pop_front();
    if (oldest) entries_.erase(*oldest);
  }
}

DeviceResult<EventId> CudaStreams::record(StreamId stream, EventOptions options) {
  if (owns_default_ && stream == StreamId::kDefault) {
    if (auto made = make_default(); !made) return Unexpected(made.error());
  }
  std::shared_ptr<Stream> live;
  std::shared_ptr<Event> event;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = entries_.find(stream);
    if (it == entries_.end()) {
      return fail(StatusCode::kUnknownHandle, "not a stream of this device", to_integer(stream));
    }
    live = it->second.stream;
    event = it->second.last;
  }
  if (live == nullptr && options.is_timed) {
    return fail(StatusCode::kUnknownHandle,
                "a timed event needs a stream that was not released",
                to_integer(stream));
  }
  if (live != nullptr) {
    const CudaScope scope(context_);
    if (!scope) return scope.error();
    auto recorded = record_on(*live, options.is_timed);
    if (!recorded) return Unexpected(recorded.error());
    event = *std::move(recorded);
  }
  const auto id = static_cast<EventId>(next_id());
  const std::scoped_lock lock(mutex_);
  events_.emplace(id, std::move(event));
  return id;
}

DeviceResult<std::shared_ptr<CudaStreams::Event>> CudaStreams::find(EventId event) const {
  const std::scoped_lock lock(mutex_);
  const auto it = events_.find(event);
  if (it == events_.end()) {
    return fail(
        StatusCode::kUnknownHandle, "not an event of this device, or released", to_integer(event));
  }
  return it->second;
}

DeviceResult<bool> CudaStreams::query(EventId event) {
  const auto found = find(event);
  if (!found) return Unexpected(found.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  return has_passed(*found);
}

DeviceResult<void> CudaStreams::make_wait(StreamId stream, EventId event) {
  const auto found = find(event);
  if (!found) return Unexpected(found.error());
  return submit(stream, [&](CUstream native) -> DeviceResult<void> {
    if (*found == nullptr) return {};
    return context_.call(context_.driver().cuStreamWaitEvent, native, (*found)->native(), 0U);
  });
}

DeviceResult<void> CudaStreams::synchronize(EventId event) {
  const auto found = find(event);
  if (!found) return Unexpected(found.error());
  if (*found == nullptr) return {};
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  return context_.call(context_.driver().cuEventSynchronize, (*found)->native());
}

DeviceResult<double> CudaStreams::elapsed_ms(EventId begin, EventId end) {
  std::array<std::shared_ptr<Event>, 2> events{};
  for (std::size_t i = 0; i < events.size(); ++i) {
    auto found = find(i == 0 ? begin : end);
    if (!found) return Unexpected(found.error());
    if (*found == nullptr || !(*found)->is_timed()) return not_timed();
    events[i] = *std::move(found);
  }
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  const CudaDriver& driver = context_.driver();
  for (const auto& event : events) {
    if (auto done = context_.call(driver.cuEventSynchronize, event->native()); !done) {
      return Unexpected(done.error());
    }
  }
  float milliseconds = 0;
  if (auto asked = context_.call(
          driver.cuEventElapsedTime, &milliseconds, events[0]->native(), events[1]->native());
      !asked) {
    return Unexpected(asked.error());
  }
  return static_cast<double>(milliseconds);
}

DeviceResult<void> CudaStreams::release(EventId event) {
  std::shared_ptr<Event> gone;  // destroyed after the lock
  const std::scoped_lock lock(mutex_);
  const auto it = events_.find(event);
  if (it == events_.end()) {
    return fail(
        StatusCode::kUnknownHandle, "not an event of this device, or released", to_integer(event));
  }
  gone = std::move(it->second);
  events_.erase(it);
  return {};
}

// --- Host tasks --------------------------------------------------------------------------------

// Requires tasks_mutex_ and a scope.
DeviceResult<CudaFlag> CudaStreams::next_flag() {
  if (flags_given_ % kFlagsOfAPage == 0) {
    flag_pages_.reserve(flag_pages_.size() + 1);
    const CudaDriver& driver = context_.driver();
    void* page = nullptr;
    if (auto made = context_.call(driver.cuMemHostAlloc,
                                  &page,
                                  kFlagPageBytes,
                                  unsigned{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP});
        !made) {
      return Unexpected(made.error());
    }
    CUdeviceptr address = 0;
    if (auto asked = context_.call(driver.cuMemHostGetDevicePointer, &address, page, 0U); !asked) {
      (void)context_.call(driver.cuMemFreeHost, page);
      return Unexpected(asked.error());
    }
    std::memset(page, 0, kFlagPageBytes);
    flag_pages_.push_back(page);
    flag_page_ = {.host = static_cast<std::uint32_t*>(page), .device = address};
  }
  const std::uint64_t offset = flags_given_ % kFlagsOfAPage * kFlagStrideBytes;
  ++flags_given_;
  return CudaFlag{.host = flag_page_.host + offset / sizeof(std::uint32_t),
                  .device = flag_page_.device + offset};
}

DeviceResult<void> CudaStreams::enqueue_host(StreamId stream, HostTask task) {
  const auto live = find_live(stream);
  if (!live) return Unexpected(live.error());
  const CudaScope scope(context_, CaptureMode::kRelaxed);
  if (!scope) return scope.error();
  const auto capturing = is_capturing(**live);
  if (!capturing) return Unexpected(capturing.error());
  if (*capturing) {
    return fail(StatusCode::kNotSupported, "a graph that is captured takes no host tasks");
  }
  std::shared_ptr<CudaTaskRunner> tasks;
  {
    const std::scoped_lock lock(tasks_mutex_);
    if ((*live)->tasks == nullptr) {
      std::erase_if(runners_, [](const auto& runner) { return runner.use_count() == 1; });
      runners_.reserve(runners_.size() + 1);
      const auto flag = next_flag();
      if (!flag) return Unexpected(flag.error());
      (*live)->tasks = CudaTaskRunner::start(*flag);
      runners_.push_back((*live)->tasks);
    }
    tasks = (*live)->tasks;
  }
  return tasks->enqueue(context_, (*live)->native, task);
}

void CudaStreams::wait_for_tasks() noexcept {
  const std::scoped_lock lock(tasks_mutex_);
  for (const auto& runner : runners_) runner->wait_until_idle();
}

void CudaStreams::clear() noexcept {
  {
    const std::scoped_lock lock(tasks_mutex_);
    runners_.clear();
    for (void* page : flag_pages_) (void)context_.driver().cuMemFreeHost(page);
    flag_pages_.clear();
  }
  {
    const std::scoped_lock lock(mutex_);
    events_.clear();
    entries_.clear();
  }
  pool_.clear();
  timed_pool_.clear();
}

}  // namespace headroom::device::internal
