#include "headroom/trace/record/file_recorder.h"

#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/trace/record/internal/capture.h"
#include "headroom/trace/record/internal/event_record.h"
#include "headroom/trace/record/internal/final_state.h"
#include "headroom/trace/record/internal/output_file.h"
#include "headroom/trace/record/internal/spsc_ring.h"
#include "headroom/trace/record/internal/stack_interner.h"
#include "headroom/trace/record/internal/tick_clock.h"
#include "headroom/trace/record/internal/trace_builder.h"
#include "headroom/trace/record/symbols.h"

namespace headroom::trace {

using internal::EventRecord;
using internal::StackInterner;

namespace {

// Room for the stacks on their way; they are few, as each goes over once.
constexpr std::size_t kStackWords = std::size_t{1} << 17U;

// Tells the writing thread to look at the queues before its time.
struct Bell {
  std::mutex mutex;
  std::condition_variable rung;
  bool is_rung = false;

  __attribute__((noinline)) void ring() noexcept {
    {
      const std::lock_guard lock(mutex);
      is_rung = true;
    }
    rung.notify_one();
  }
};

}  // namespace

// The queue of one allocator: record() is called under that allocator's lock, the rest by the
// writing thread.
class FileRecorder::Channel final : public memory::EventSink {
 public:
  Channel(DeviceKey key, const FileOptions& options, Bell& bell)
      : stacks_options_(options.stacks),
        is_quick_(internal::has_steady_counter() && options.stacks.mode == StackMode::kNone),
        events_(options.queue_events),
        wake_mask_(std::bit_floor(events_.capacity() / 4 + 1) - 1),
        stack_words_(kStackWords),
        bell_(bell),
        key_(key) {}

  void record(const memory::Event& event) noexcept override {
    if (is_quick_) [[likely]] {
      return keep(event, internal::counter_ticks(), StackInterner::kNone);
    }
    record_slowly(event, __builtin_frame_address(0));
  }

  // The next events, up to all of `out`.
  std::span<EventRecord> pop(std::vector<EventRecord>& out) {
    return std::span(out).first(events_.pop(out));
  }

  // The stacks that events up to now name, into the trace.
  StackId stack_of(std::uint32_t id, internal::TraceBuilder& builder) {
    while (id >= stack_ids_.size()) take_stack(builder);
    return stack_ids_[id];
  }

  [[nodiscard]] const DeviceKey& key() const noexcept { return key_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept {
    return dropped_.load(std::memory_order_relaxed);
  }
  // The part of it that is in the file; for the writing thread.
  std::uint64_t dropped_written = 0;

 private:
  __attribute__((noinline)) void record_slowly(const memory::Event& event,
                                               const void* frame) noexcept {
    const bool has_stack = internal::wants_stack(stacks_options_.mode, event.action);
    const std::uint32_t stack = has_stack ? stack_id(frame) : StackInterner::kNone;
    keep(event, internal::ticks(), stack);
  }

  void keep(const memory::Event& event, std::uint64_t ticks, std::uint32_t stack) noexcept {
    EventRecord* slot = events_.claim();
    if (slot != nullptr) [[likely]] {
      EventRecord::write(event, ticks, stack, [slot](std::size_t i, std::uint64_t word) {
        slot->words[i] = word;
      });
      events_.commit();
      events_.prefetch(EventRecord::kAhead);
    } else {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    if ((++recorded_ & wake_mask_) == 0) [[unlikely]] {
      bell_.ring();
    }
  }

  std::uint32_t stack_id(const void* frame) noexcept {
    // The count of addresses goes over before them. Filled as far as it is used.
    std::array<std::uint64_t, kMostFrames + 1> words;
    const auto addresses = internal::capture(stacks_options_, frame, std::span(words).subspan(1));
    const std::uint64_t hash = StackInterner::hash_of(addresses);
    const std::uint32_t known = interner_.find(addresses, hash);
    if (known != StackInterner::kNone) return known;
    words[0] = addresses.size();
    // Numbers are given on both sides in the same order, so what does not go over gets none.
    const std::span<const std::uint64_t> message(words.data(), addresses.size() + 1);
    if (is_out_of_step_ || !stack_words_.push(message)) return StackInterner::kNone;
    const std::uint32_t id = interner_.add(addresses, hash);
    is_out_of_step_ = id == StackInterner::kNone;
    return id;
  }

  void take_stack(internal::TraceBuilder& builder) {
    std::uint64_t count = 0;
    stack_words_.pop({&count, 1});
    std::vector<std::uint64_t> addresses(count);
    stack_words_.pop(addresses);
    stack_ids_.push_back(builder.stack(addresses));
  }

  // The allocator's side.
  StackOptions stacks_options_;
  bool is_quick_;  // neither stacks nor the system's clock
  internal::SpscRing<EventRecord> events_;
  std::uint64_t wake_mask_;
  std::uint64_t recorded_ = 0;
  StackInterner interner_;
  bool is_out_of_step_ = false;
  // Both.
  internal::SpscRing<std::uint64_t> stack_words_;
  std::atomic<std::uint64_t> dropped_{0};
  Bell& bell_;
  // The writing thread's side.
  DeviceKey key_;
  std::vector<StackId> stack_ids_{0};
};

class FileRecorder::Impl {
 public:
  explicit Impl(FileOptions options)
      : options_(std::move(options)),
        file_(options_.path, options_.overwrite),
        builder_(trace_),
        batch_(options_.hrt.events_per_block) {
    trace_.origin = Origin::kHeadroom;
    trace_.producer = "headroom " HEADROOM_VERSION;
    trace_.has_annotations = true;
    writer_.emplace(
        trace_,
        [this](std::span<const std::byte> bytes) { return file_.write(bytes); },
        options_.hrt);
    writer_->properties();
    try {
      thread_ = std::make_unique<std::thread>([this] { run(); });
    } catch (const std::system_error& error) {
      throw Error("cannot record into " + options_.path +
                  ": its thread cannot be started: " + error.code().message());
    }
  }

  memory::EventSink& channel(const DeviceKey& key) {
    if (is_elsewhere()) throw Forked();
    const std::lock_guard lock(writing_);
    for (const auto& known : channels_) {
      if (known->key() == key) return *known;
    }
    channels_.push_back(std::make_unique<Channel>(key, options_, bell_));
    writer_->device(key, 0);
    return *channels_.back();
  }

  void set_settings(Value settings) {
    if (is_elsewhere()) throw Forked();
    const std::lock_guard lock(writing_);
    trace_.settings = std::move(settings);
    writer_->properties();
  }

  void mark(std::string_view name, bool is_start) {
    if (is_elsewhere()) return;
    const std::uint64_t now = internal::ticks();
    const std::lock_guard lock(marks_mutex_);
    marks_.push_back({.name = std::string(name), .is_start = is_start, .ticks = now});
  }

  void flush() {
    if (is_elsewhere()) return;
    const std::lock_guard lock(writing_);
    if (thread_ != nullptr) drain();
  }

  FormatResult<void> close(std::span<const FinalState> states) {
    if (is_elsewhere()) {
      // The thread is not here, and the file is the parent's. Joining it would wait for ever.
      keep_for_ever(thread_.release());
      return {};
    }
    if (thread_ == nullptr) return {};
    is_stopping_ = true;
    bell_.ring();
    thread_->join();
    thread_.reset();
    const std::lock_guard lock(writing_);
    drain();
    if (!has_failed_) finish(states);
    const bool is_closed = file_.close();
    if (writer_->ok() && is_closed && !has_failed_) return {};
    return Unexpected(
        FormatError{.message = "cannot write " + file_.path() + ": " + file_.error()});
  }

  [[nodiscard]] std::uint64_t dropped() const {
    if (is_elsewhere()) return 0;
    const std::lock_guard lock(writing_);
    std::uint64_t sum = 0;
    for (const auto& channel : channels_) sum += channel->dropped();
    return sum;
  }
  [[nodiscard]] std::uint64_t written() const {
    if (is_elsewhere()) return 0;
    const std::lock_guard lock(writing_);
    return writer_->written_bytes();
  }
  [[nodiscard]] const std::string& path() const noexcept { return options_.path; }
  // In the child of a fork, to which neither the thread nor the file belongs.
  [[nodiscard]] bool is_elsewhere() const noexcept { return made_.is_forked(); }

 private:
  void run() noexcept {
    try {
      write_until_stopped();
    } catch (...) {  // No memory: what is written stays, what comes is dropped.
      has_failed_ = true;
    }
  }

  void write_until_stopped() {
    while (!is_stopping_) {
      {
        std::unique_lock lock(bell_.mutex);
        bell_.rung.wait_for(lock, options_.interval, [this] { return bell_.is_rung; });
        bell_.is_rung = false;
      }
      const std::lock_guard lock(writing_);
      drain();
    }
  }

  // Everything that is in the queues now. Requires writing_.
  void drain() {
    if (has_failed_) return;
    clock_.adjust();
    for (const auto& channel : channels_) drain(*channel);
    std::vector<internal::Mark> marks;
    {
      const std::lock_guard lock(marks_mutex_);
      marks.swap(marks_);
    }
    std::vector<Annotation> annotations;
    annotations.reserve(marks.size());
    for (const internal::Mark& mark : marks) {
      annotations.push_back(builder_.annotation(mark, clock_));
    }
    writer_->annotations(annotations);
  }

  void drain(Channel& channel) {
    for (;;) {
      const std::span<EventRecord> records = channel.pop(batch_);
      entries_.clear();
      for (const EventRecord& record : records) {
        const StackId stack = channel.stack_of(record.stack(), builder_);
        entries_.push_back(builder_.entry(record, clock_, stack));
      }
      writer_->events(channel.key(), entries_);
      if (records.size() < batch_.size()) break;
    }
    const std::uint64_t dropped = channel.dropped();
    if (std::exchange(channel.dropped_written, dropped) != dropped) {
      writer_->device(channel.key(), dropped);
    }
  }

  void finish(std::span<const FinalState> states) {
    for (const FinalState& state : states) {
      internal::append_segments(trace_, builder_, state.key, state.segments);
    }
    writer_->segments(trace_.segments);
    if (options_.stacks.symbolise) writer_->symbols(find_symbols(trace_));
    writer_->finish();
  }

  FileOptions options_;
  internal::OutputFile file_;
  internal::TickClock clock_;
  Trace trace_;  // the tables, not the events
  internal::TraceBuilder builder_;
  std::vector<EventRecord> batch_;
  std::vector<Entry> entries_;
  ForkMark made_{};
  std::optional<HrtWriter> writer_;
  Bell bell_;
  // Held while the queues are emptied and the file is written; guards all of the above but bell_.
  mutable std::mutex writing_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::mutex marks_mutex_;
  std::vector<internal::Mark> marks_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_failed_{false};
  std::unique_ptr<std::thread> thread_;
};

FileRecorder::FileRecorder(FileOptions options) {
  if (options.queue_events == 0 || options.hrt.events_per_block == 0) {
    throw InvalidArgument("a file recorder needs room for at least one event in queue and block");
  }
  impl_ = std::make_unique<Impl>(std::move(options));
}

FileRecorder::~FileRecorder() {
  (void)close();
  // In the child of a fork the writing thread is not there, but still waits as far as the condition
  // variable knows, whose destructor would wait for it.
  if (impl_->is_elsewhere()) keep_for_ever(impl_.release());
}

memory::EventSink& FileRecorder::channel(const DeviceKey& key) { return impl_->channel(key); }

void FileRecorder::set_settings(Value settings) { impl_->set_settings(std::move(settings)); }

void FileRecorder::mark(std::string_view name, bool is_start) noexcept {
  try {
    impl_->mark(name, is_start);
  } catch (...) {  // No memory for it: the recording lacks a mark.
    return;
  }
}

void FileRecorder::flush() { impl_->flush(); }

FormatResult<void> FileRecorder::close(std::span<const FinalState> states) {
  return impl_->close(states);
}

const std::string& FileRecorder::path() const noexcept { return impl_->path(); }

std::uint64_t FileRecorder::dropped_events() const noexcept { return impl_->dropped(); }

std::uint64_t FileRecorder::written_bytes() const noexcept { return impl_->written(); }

}  // namespace headroom::trace
