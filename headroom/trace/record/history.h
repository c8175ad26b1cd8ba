// Recordings of what happens to memory: PyTorch's memory history for our allocators.
//
//   headroom::record_memory_history({.stacks = {.mode = trace::StackMode::kOnAllocation}});
//   train();
//   headroom::dump_snapshot("run.pickle");   // for PyTorch's viewer; .hrt is ours, and small
//   headroom::stop_recording();
//
// Without `file` the last events of each device are kept in memory. With it, all go to that .hrt
// file as they happen, and are there when the process dies.
//
// HEADROOM_OOM_SNAPSHOT=PATH (%p is the process's number) writes a snapshot when memory runs out
// while this records.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headroom/memory/allocator.h"
#include "headroom/trace/format_error.h"
#include "headroom/trace/record/stack_options.h"
#include "headroom/trace/record/stack_source.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

struct HistoryOptions {
  std::uint64_t max_events = std::uint64_t{1} << 20U;  // in memory, of each device; 64 bytes each
  std::string file{};                                  // a .hrt file to write instead
  bool overwrite = false;                              // that file, where it exists
  std::uint64_t max_file_bytes = 0;  // of that file; the oldest events make room; 0 is no bound
  StackOptions stacks{};
  const StackSource* stack_source = nullptr;  // for a file: stacks in place of these
  // Called when that file cannot be written any more (FileOptions::on_failure).
  std::function<void(const std::string&)> on_failure{};
  // Where to write a snapshot when memory runs out. Empty: what HEADROOM_OOM_SNAPSHOT says. A file
  // that exists is kept, and the new one gets a number.
  std::string out_of_memory_path{};
};

// Records the allocators it is attached to. Those outlive their being attached.
class History {
 public:
  // Throws Error when the file cannot be created.
  explicit History(HistoryOptions options = {});
  // Stops, and says on stderr when the file could not be finished.
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Takes the allocator's one place for a sink. Its number in traces is its device's index, or
  // where that is taken (cpu:0 beside cuda:0) the next free one.
  void attach(memory::Allocator& allocator);
  // Detaches all, and finishes the file.
  FormatResult<void> stop();

  // Events so far (in `file` mode none) and, as they left it, the state of every allocator.
  [[nodiscard]] Trace snapshot() const;
  // The same, to a file, by its name's ending.
  [[nodiscard]] FormatResult<void> dump(const std::string& path) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with callbacks that may be running
};

}  // namespace headroom::trace

namespace headroom {

using trace::HistoryOptions;

// Records the process's own allocators (memory/api.h), those to come too, until stop_recording or
// the end of the process. What was recorded before is forgotten. Throws Error when options.file
// cannot be created.
void record_memory_history(const HistoryOptions& options = {});
// Throws Error when the file could not be finished.
void stop_recording();
[[nodiscard]] bool is_recording();
// Without a recording: the state of the process's allocators alone.
[[nodiscard]] trace::Trace snapshot();
// The format is what the name's ending says (trace/file.h). Throws Error when it cannot be
// written; an existing file is not overwritten.
void dump_snapshot(const std::string& path);

}  // namespace headroom
