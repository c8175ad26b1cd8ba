// CudaStreams: which streams and events a CudaDevice has.
//
// The driver reuses the handle of a destroyed stream, so streams are told apart by the driver's own
// number for them, which is not reused. When a stream is released, an event is recorded on it and
// the stream is given back at once: what is recorded on it afterwards is that event.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "headroom/device/cuda/internal/context.h"
#include "headroom/device/cuda/internal/host_tasks.h"
#include "headroom/device/device.h"
#include "headroom/device/internal/departed_streams.h"

namespace headroom::device::internal {

// Events of one kind, made when there is none left over.
class CudaEventPool {
 public:
  // `flags`: CU_EVENT_DEFAULT for events with times, CU_EVENT_DISABLE_TIMING for cheaper ones.
  CudaEventPool(CudaContext& context, unsigned flags) : context_(context), flags_(flags) {}
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  class Event {
   public:
    Event(CudaEventPool& pool, CUevent native) noexcept : pool_(pool), native_(native) {}
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() { pool_.give_back(native_); }
    [[nodiscard]] CUevent native() const noexcept { return native_; }
    [[nodiscard]] bool is_timed() const noexcept { return pool_.flags_ == CU_EVENT_DEFAULT; }
    // Whether it was recorded into a graph; to ask the driver about such a one breaks the capture.
    [[nodiscard]] bool is_captured() const noexcept { return is_captured_; }
    void set_captured(bool is_captured) noexcept { is_captured_ = is_captured; }

   private:
    CudaEventPool& pool_;
    CUevent native_;
    bool is_captured_ = false;
  };

  // Requires a scope.
  DeviceResult<std::shared_ptr<Event>> take();
  // Destroys what was given back. Requires a scope.
  void clear() noexcept;

 private:
  void give_back(CUevent event) noexcept;

  CudaContext& context_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<CUevent> unused_;  // has room for all that were made
  std::size_t made_ = 0;
};

class CudaStreams {
 public:
  CudaStreams(CudaContext& context, bool owns_default);
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  DeviceResult<StreamId> create(StreamOptions options);
  DeviceResult<StreamId> adopt(NativeStream native, StreamLife life);
  DeviceResult<NativeStream> native(StreamId stream);
  DeviceResult<void> release(StreamId stream);
  DeviceResult<void> synchronize(StreamId stream);
  DeviceResult<bool> is_capturing(StreamId stream);

  DeviceResult<EventId> record(StreamId stream, EventOptions options);
  DeviceResult<bool> query(EventId event);
  DeviceResult<void> make_wait(StreamId stream, EventId event);
  DeviceResult<void> synchronize(EventId event);
  DeviceResult<double> elapsed_ms(EventId begin, EventId end);
  DeviceResult<void> release(EventId event);

  DeviceResult<void> enqueue_host(StreamId stream, HostTask task);

  // Calls `submit(native stream)` with the context current; kUnknownHandle if there is no such
  // stream.
  template <class Submit>
  DeviceResult<void> submit(StreamId stream, Submit submit) {
    const auto live = find_live(stream);
    if (!live) return Unexpected(live.error());
    const CudaScope scope(context_);
    if (!scope) return scope.error();
    return submit((*live)->native);
  }

  // Waits until no host task is queued or running.
  void wait_for_tasks() noexcept;
  // Gives everything back. Nothing is queued any more; the context is current.
  void clear() noexcept;

 private:
  using Event = CudaEventPool::Event;
  struct Stream {
    Stream(CudaContext& the_context, CUstream the_native, bool owned) noexcept
        : context(the_context), native(the_native), is_owned(owned) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();

    CudaContext& context;
    const CUstream native;
    const bool is_owned;
    // Otherwise its owner may destroy it without a word, and the handle is not to be used again.
    std::atomic<bool> is_lasting{true};
    std::shared_ptr<CudaTaskRunner> tasks;  // made with the first task; requires tasks_mutex_
  };
  struct Entry {
    std::shared_ptr<Stream> stream{};  // null once released
    std::shared_ptr<Event> last{};     // of a released stream; null when it has passed
    unsigned long long driver_id = 0;  // 0 while it is not known
  };

  DeviceResult<std::shared_ptr<Stream>> find_live(StreamId stream);
  DeviceResult<std::shared_ptr<Stream>> make_stream(int priority);
  DeviceResult<void> make_default();
  DeviceResult<std::shared_ptr<Event>> find(EventId event) const;
  DeviceResult<bool> is_capturing(const Stream& stream);
  DeviceResult<bool> has_passed(const std::shared_ptr<Event>& event);
  DeviceResult<std::shared_ptr<Event>> record_on(const Stream& stream, bool is_timed = false);
  DeviceResult<std::shared_ptr<Event>> record_on_context();
  DeviceResult<StreamId> add(std::shared_ptr<Stream> stream);
  void retire_earlier(CUstream handle, unsigned long long driver_id);
  StreamId add_captured(std::shared_ptr<Stream> stream);
  void forget_drained();
  DeviceResult<CudaFlag> next_flag();

  CudaContext& context_;
  const bool owns_default_;
  CudaEventPool pool_;
  CudaEventPool timed_pool_;
  mutable std::mutex mutex_;  // guards the tables; never held around a driver call that waits
  std::unordered_map<StreamId, Entry> entries_;
  std::unordered_map<unsigned long long, StreamId> by_driver_id_;
  std::unordered_map<CUstream, StreamId> by_handle_;  // the last that had it
  std::unordered_map<EventId, std::shared_ptr<Event>> events_;
  std::deque<StreamId> draining_;  // released, in order, with an event that may not have passed
  DepartedStreams departed_;
  std::mutex tasks_mutex_;  // guards all below
  std::vector<std::shared_ptr<CudaTaskRunner>> runners_;
  std::vector<void*> flag_pages_;
  CudaFlag flag_page_{};
  std::uint64_t flags_given_ = 0;
};

}  // namespace headroom::device::internal
