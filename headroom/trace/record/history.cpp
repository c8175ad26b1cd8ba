#include "headroom/trace/record/history.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "headroom/base/env.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/base/tick_clock.h"
#include "headroom/memory/api.h"
#include "headroom/trace/file.h"
#include "headroom/trace/internal/settings.h"
#include "headroom/trace/record/file_recorder.h"
#include "headroom/trace/record/internal/final_state.h"
#include "headroom/trace/record/internal/free_path.h"
#include "headroom/trace/record/internal/trace_builder.h"
#include "headroom/trace/record/ring_recorder.h"
#include "headroom/trace/record/symbols.h"

namespace headroom::trace {
namespace {

// Marks kept in memory: weeks of phases, and no more than some MB.
constexpr std::size_t kMostMarks = 65'536;

void complain(const std::string& text) noexcept {
  std::fprintf(stderr, "headroom: %s\n", text.c_str());
}

}  // namespace

namespace {

Trace empty_trace() {
  Trace trace;
  trace.origin = Origin::kHeadroom;
  trace.producer = "headroom " HEADROOM_VERSION;
  trace.has_annotations = true;
  return trace;
}

// The first of `wanted`, `wanted` + 1 and so on that no device of the trace has.
template <class IsTaken>
int free_number(int wanted, const IsTaken& is_taken) {
  while (is_taken(wanted)) ++wanted;
  return wanted;
}

Trace state_of(const std::vector<memory::Allocator*>& allocators) {
  Trace trace = empty_trace();
  internal::TraceBuilder builder(trace);
  for (const memory::Allocator* allocator : allocators) {
    const int number = free_number(allocator->device().id().index, [&trace](int candidate) {
      return std::ranges::any_of(trace.devices,
                                 [=](const DeviceTrace& d) { return d.device == candidate; });
    });
    trace.devices.push_back({.device = number});
    internal::append_segments(trace, builder, {.device = number}, allocator->segments());
    if (!trace.settings) trace.settings = internal::settings_of(*allocator);
    internal::add_device(*trace.settings, number, *allocator);
  }
  std::ranges::sort(trace.devices, {}, &DeviceTrace::device);
  return trace;
}

}  // namespace

class History::Impl final : public memory::ScopeObserver,
                            public std::enable_shared_from_this<History::Impl> {
 public:
  explicit Impl(HistoryOptions options) : options_(std::move(options)) {
    if (options_.out_of_memory_path.empty()) {
      options_.out_of_memory_path = env_string("HEADROOM_OOM_SNAPSHOT").value_or("");
    }
    if (!options_.file.empty()) {
      file_ = std::make_unique<FileRecorder>(FileOptions{.path = options_.file,
                                                         .overwrite = options_.overwrite,
                                                         .stacks = options_.stacks,
                                                         .stack_source = options_.stack_source,
                                                         .max_bytes = options_.max_file_bytes,
                                                         .on_failure = options_.on_failure});
    }
    memory::add_scope_observer(*this);
  }
  ~Impl() override { memory::remove_scope_observer(*this); }

  void attach(memory::Allocator& allocator) {
    if (made_.is_forked()) throw Forked();
    const std::lock_guard lock(mutex_);
    Attached added{.allocator = &allocator,
                   .key = {.device = free_number(allocator.device().id().index, [this](int n) {
                             return std::ranges::any_of(
                                 attached_, [n](const Attached& a) { return a.key.device == n; });
                           })}};
    if (file_ != nullptr) {
      added.sink = &file_->channel(added.key);
    } else {
      added.ring = std::make_unique<RingRecorder>(
          RingOptions{.capacity_events = options_.max_events, .stacks = options_.stacks});
      added.sink = added.ring.get();
    }
    allocator.add_sink(*added.sink);
    if (!options_.out_of_memory_path.empty()) {
      added.callback = allocator.add_out_of_memory_callback(
          [weak = weak_from_this()](const memory::OutOfMemoryReport& /*report*/) {
            if (const auto self = weak.lock()) self->dump_for_out_of_memory();
          });
    }
    attached_.push_back(std::move(added));
    if (file_ != nullptr) file_->set_settings(*settings());
  }

  // In the child of a fork the recording goes on without it.
  FormatResult<void> stop() {
    memory::remove_scope_observer(*this);
    if (made_.is_forked()) return {};
    const std::lock_guard lock(mutex_);
    std::vector<FinalState> states;
    if (file_ != nullptr && !attached_.empty()) file_->set_settings(*settings());
    for (const Attached& attached : attached_) {
      attached.allocator->remove_sink(*attached.sink);
      if (attached.callback) attached.allocator->remove_callback(*attached.callback);
      if (file_ != nullptr) states.push_back({attached.key, attached.allocator->segments()});
    }
    attached_.clear();
    return file_ != nullptr ? file_->close(states) : FormatResult<void>{};
  }

  [[nodiscard]] Trace snapshot() {
    if (made_.is_forked()) throw Forked();
    const std::lock_guard lock(mutex_);
    Trace trace = empty_trace();
    internal::TraceBuilder builder(trace);
    for (const Attached& attached : attached_) {
      std::uint64_t sequence = 0;
      const auto segments = attached.allocator->segments(&sequence);
      std::unordered_map<DeviceAddress, StackId> stacks;
      if (attached.ring != nullptr) {
        attached.ring->append_to(trace, builder, attached.key, sequence);
        stacks = internal::live_stacks(trace.devices.back().events);
      } else {
        trace.devices.push_back({.device = attached.key.device});
      }
      internal::append_segments(trace, builder, attached.key, segments, stacks);
    }
    trace.settings = settings();
    std::ranges::sort(trace.devices, {}, &DeviceTrace::device);
    append_marks(trace, builder);
    if (options_.stacks.symbolise) symbolise(trace);
    return trace;
  }

  [[nodiscard]] FormatResult<void> dump(const std::string& path) {
    return write_trace(snapshot(), path);
  }

  void scope_changed(std::string_view name, bool is_start) noexcept override {
    if (made_.is_forked()) return;
    if (file_ != nullptr) return file_->mark(name, is_start);
    const std::uint64_t now = ticks();
    try {
      const std::lock_guard lock(marks_mutex_);
      if (marks_.size() == kMostMarks) marks_.pop_front();
      marks_.push_back({.name = std::string(name), .is_start = is_start, .ticks = now});
    } catch (...) {  // No memory for it: the recording lacks a mark.
      return;
    }
  }

 private:
  struct Attached {
    memory::Allocator* allocator = nullptr;
    DeviceKey key{};
    std::unique_ptr<RingRecorder> ring{};
    memory::EventSink* sink = nullptr;  // the ring, or the file's channel
    std::optional<memory::Allocator::CallbackId> callback{};
  };

  // Of the first allocator, and what there is to say of each device, as they are now.
  [[nodiscard]] std::optional<Value> settings() const {
    std::optional<Value> out;
    for (const Attached& attached : attached_) {
      if (!out) out = internal::settings_of(*attached.allocator);
      internal::add_device(*out, attached.key.device, *attached.allocator);
    }
    return out;
  }

  void append_marks(Trace& trace, internal::TraceBuilder& builder) {
    const std::lock_guard lock(marks_mutex_);
    clock_.adjust();
    for (const internal::Mark& mark : marks_) {
      trace.annotations.push_back(builder.annotation(mark, clock_));
    }
  }

  // The failure is on its way to whoever asked for memory; nothing here may get in its way.
  void dump_for_out_of_memory() noexcept {
    try {
      const std::string path =
          internal::free_path(internal::expand_path(options_.out_of_memory_path));
      const auto written = dump(path);
      complain(written ? "out of memory; a snapshot is in " + path
                       : "out of memory, and no snapshot: " + to_string(written.error()));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "headroom: out of memory, and no snapshot: %s\n", error.what());
    }
  }

  HistoryOptions options_;
  ForkMark made_{};
  std::mutex mutex_;
  std::vector<Attached> attached_;
  std::unique_ptr<FileRecorder> file_;
  std::mutex marks_mutex_;
  std::deque<internal::Mark> marks_;
  TickClock clock_;
};

History::History(HistoryOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

History::~History() {
  if (const auto stopped = impl_->stop(); !stopped) complain(to_string(stopped.error()));
}

void History::attach(memory::Allocator& allocator) { impl_->attach(allocator); }

FormatResult<void> History::stop() { return impl_->stop(); }

Trace History::snapshot() const { return impl_->snapshot(); }

FormatResult<void> History::dump(const std::string& path) const { return impl_->dump(path); }

}  // namespace headroom::trace

namespace headroom {
namespace {

// The recording of the process. Never destroyed, as its allocators are not; ended by atexit.
struct Process {
  ForkSafeMutex mutex{ForkSafeMutex::Rank::kRecording};
  std::shared_ptr<trace::History> history;
  bool is_ended_at_exit = false;
};

Process& process() {
  static auto* const instance = new Process;
  return *instance;
}

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const Process& made_process = process();

trace::FormatResult<void> end(Process& state) {
  if (state.history == nullptr) return {};
  set_allocator_observer({});
  auto stopped = state.history->stop();
  state.history.reset();
  return stopped;
}

void end_at_exit() {
  const std::lock_guard lock(process().mutex);
  if (const auto stopped = end(process()); !stopped) {
    trace::complain(to_string(stopped.error()));
  }
}

}  // namespace

void record_memory_history(const HistoryOptions& options) {
  Process& state = process();
  const std::lock_guard lock(state.mutex);
  if (const auto stopped = end(state); !stopped) throw Error(to_string(stopped.error()));
  state.history = std::make_shared<trace::History>(options);
  set_allocator_observer(
      [history = state.history](memory::Allocator& allocator) { history->attach(allocator); });
  if (!std::exchange(state.is_ended_at_exit, true)) std::atexit(end_at_exit);
}

void stop_recording() {
  const std::lock_guard lock(process().mutex);
  if (const auto stopped = end(process()); !stopped) throw Error(to_string(stopped.error()));
}

bool is_recording() {
  const std::lock_guard lock(process().mutex);
  return process().history != nullptr;
}

trace::Trace snapshot() {
  const std::lock_guard lock(process().mutex);
  if (process().history != nullptr) return process().history->snapshot();
  std::vector<memory::Allocator*> allocators;
  set_allocator_observer(
      [&allocators](memory::Allocator& allocator) { allocators.push_back(&allocator); });
  set_allocator_observer({});
  return trace::state_of(allocators);
}

void dump_snapshot(const std::string& path) {
  if (const auto written = trace::write_trace(snapshot(), path); !written) {
    throw Error(to_string(written.error()));
  }
}

}  // namespace headroom
