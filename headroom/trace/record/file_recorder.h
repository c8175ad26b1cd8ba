// FileRecorder: events as they happen, into a .hrt file.
//
//   FileRecorder recorder({.path = "run.hrt"});
//   memory::EventSink& sink = recorder.channel({.device = 0});
//   allocator.add_sink(sink);
//   ...
//   allocator.remove_sink(sink);
//   recorder.close({{{.device = 0}, allocator.segments()}});
//
// An event costs the allocator a few ns: it goes into a queue, and a thread of the recorder's packs
// and writes what is there, every 200 ms at the latest. A process that is killed leaves a file that
// opens and lacks what was in the queue. When the queue is full events are dropped, counted, and
// the file says so. With `max_bytes` the oldest events make room for new ones; what was held then
// stays in the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/memory/event.h"
#include "headroom/memory/types.h"
#include "headroom/trace/format_error.h"
#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/record/stack_options.h"
#include "headroom/trace/record/stack_source.h"
#include "headroom/trace/value.h"

namespace headroom::trace {

struct FileOptions {
  std::string path{};
  bool overwrite = false;                   // else an existing file is an error
  std::uint64_t queue_events = 262'144;     // of each device; 64 bytes each
  std::chrono::milliseconds interval{200};  // between writes, at most
  HrtOptions hrt{.level = 3, .events_per_block = 16'384};
  StackOptions stacks{};
  // Stacks of what takes memory, in place of `stacks`; it outlives the recorder.
  const StackSource* stack_source = nullptr;
  // Of the file, and of the one that it is made anew from; 0 is no bound, and 1 MiB the least.
  std::uint64_t max_bytes = 0;
  // Called once when the file cannot be written any more, with a sentence, by the thread that finds
  // it; it must not call the recorder. Events are dropped from then on.
  std::function<void(const std::string&)> on_failure{};
};

// The blocks and segments of a device's allocator when its recording ended.
struct FinalState {
  DeviceKey key{};
  std::vector<memory::SegmentInfo> segments{};
};

class FileRecorder {
 public:
  // Creates the file. Throws Error when it cannot, InvalidArgument for odd options.
  explicit FileRecorder(FileOptions options);
  // Closes, without final states.
  ~FileRecorder();
  FileRecorder(const FileRecorder&) = delete;
  FileRecorder& operator=(const FileRecorder&) = delete;

  // The sink for one allocator, as long as the recorder lives; the same for the same key.
  [[nodiscard]] memory::EventSink& channel(const DeviceKey& key);
  // The allocator's settings, to be kept with the events.
  void set_settings(Value settings);
  // A phase or an iteration starts or ends.
  void mark(std::string_view name, bool is_start) noexcept;
  // Returns when everything recorded before is in the file.
  void flush();
  // Writes the rest, the symbols of the stacks and the final states. Events after it are ignored.
  // The error says what could not be written; what was before it is in the file.
  FormatResult<void> close(std::span<const FinalState> states = {});

  [[nodiscard]] const std::string& path() const noexcept;
  // For which there was no room in the queues.
  [[nodiscard]] std::uint64_t dropped_events() const noexcept;
  [[nodiscard]] std::uint64_t written_bytes() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::trace
