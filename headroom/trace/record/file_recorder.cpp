#include "headroom/trace/record/file_recorder.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/base/tick_clock.h"
#include "headroom/trace/record/internal/bounded_file.h"
#include "headroom/trace/record/internal/event_record.h"
#include "headroom/trace/record/internal/file_channel.h"
#include "headroom/trace/record/internal/final_state.h"
#include "headroom/trace/record/internal/trace_builder.h"
#include "headroom/trace/record/symbols.h"

namespace headroom::trace {

using internal::EventRecord;
using internal::FileChannel;

namespace {

constexpr std::uint64_t kPackedBlockBytes = 32;  // of a final state, more than one takes in a file

// What goes together: stacks of a source, blocks that are small beside a small file.
FileOptions consistent(FileOptions options) {
  if (options.stack_source != nullptr) {
    options.stacks = {.mode = StackMode::kOnAllocation, .symbolise = false};
  }
  if (options.max_bytes != 0) {
    const std::uint64_t most = std::max<std::uint64_t>(options.max_bytes >> 10U, 1);
    options.hrt.events_per_block =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(options.hrt.events_per_block, most));
  }
  return options;
}

}  // namespace

class FileRecorder::Impl {
 public:
  explicit Impl(FileOptions options)
      : options_(consistent(std::move(options))),
        file_(options_.path, options_.overwrite, options_.max_bytes),
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
    channels_.push_back(std::make_unique<FileChannel>(key, options_, bell_));
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
    const std::uint64_t now = ticks();
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
    if (!writer_->ok() || !is_closed) fail(file_.error());
    if (!has_failed_) return {};
    return Unexpected(FormatError{.message = failure_});
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
    } catch (const std::exception& error) {  // No memory: what is written stays.
      const std::lock_guard lock(writing_);
      fail(error.what());
    }
  }

  // Requires writing_.
  void fail(std::string_view why) noexcept {
    if (std::exchange(has_failed_, true)) return;
    try {
      failure_ = "cannot write " + file_.path() + ": ";
      failure_ += why;
      if (options_.on_failure) options_.on_failure(failure_);
    } catch (const std::exception&) {  // No memory for the sentence either.
      return;
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
    make_room();
  }

  // Requires writing_.
  void make_room() {
    const bool has_room = file_.make_room(*writer_, [this] {
      for (const auto& channel : channels_) {
        writer_->device(channel->key(), channel->dropped_written);
      }
    });
    if (!has_room || !writer_->ok()) fail(file_.error());
  }

  void drain(FileChannel& channel) {
    while (!has_failed_) {
      const std::span<EventRecord> records = channel.pop(batch_);
      std::uint64_t room = file_.room_for_stacks(*writer_);
      entries_.clear();
      for (const EventRecord& record : records) {
        const StackId stack = channel.stack_of(record.stack(), builder_, room);
        entries_.push_back(builder_.entry(record, clock_, stack));
      }
      writer_->events(channel.key(), entries_);
      file_.note(channel.key(), entries_);
      make_room();
      if (records.size() < batch_.size()) break;
    }
    const std::uint64_t dropped = channel.dropped();
    if (std::exchange(channel.dropped_written, dropped) != dropped) {
      writer_->device(channel.key(), dropped);
    }
  }

  void finish(std::span<const FinalState> states) {
    std::uint64_t blocks = 0;
    for (const FinalState& state : states) {
      for (const memory::SegmentInfo& segment : state.segments) blocks += segment.blocks.size() + 1;
    }
    if (!file_.has_room_for(blocks * kPackedBlockBytes)) states = {};
    for (const FinalState& state : states) {
      internal::append_segments(trace_, builder_, state.key, state.segments);
    }
    writer_->segments(trace_.segments);
    if (options_.stacks.symbolise) writer_->symbols(find_symbols(trace_));
    writer_->finish();
  }

  FileOptions options_;
  internal::BoundedFile file_;
  TickClock clock_;
  Trace trace_;  // the tables, not the events
  internal::TraceBuilder builder_;
  std::vector<EventRecord> batch_;
  std::vector<Entry> entries_;
  ForkMark made_{};
  std::optional<HrtWriter> writer_;
  internal::Bell bell_;
  // Held while the queues are emptied and the file is written; guards all of the above but bell_.
  mutable std::mutex writing_;
  std::vector<std::unique_ptr<FileChannel>> channels_;
  std::mutex marks_mutex_;
  std::vector<internal::Mark> marks_;
  std::atomic<bool> is_stopping_{false};
  bool has_failed_ = false;  // these two as of writing_
  std::string failure_{};
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
