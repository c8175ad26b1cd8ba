#include "headroom/trace/pickle/pickle_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/trace/internal/failure.h"
#include "headroom/trace/pickle/internal/pickle_sink.h"

namespace headroom::trace {
namespace {

using internal::PickleSink;
using memory::BlockState;

constexpr std::size_t kReportEvents = 65'536;
constexpr int kMaxDevice = 65'535;  // a snapshot has a list for each below, too

std::string_view state_name(BlockState state) {
  switch (state) {
    case BlockState::kAllocated:
      return "active_allocated";
    case BlockState::kPendingFree:
      return "active_pending_free";
    case BlockState::kUnmapped:
      return "unmapped";
    case BlockState::kInactive:
      break;
  }
  return "inactive";
}

struct Sums {
  std::uint64_t allocated = 0;
  std::uint64_t active = 0;
  std::uint64_t requested = 0;  // of active blocks
};

Sums sums_of(const Segment& segment) {
  Sums sums;
  for (const Block& block : segment.blocks) {
    const bool is_allocated = block.state == BlockState::kAllocated;
    if (is_allocated) sums.allocated += block.size_bytes;
    if (!is_allocated && block.state != BlockState::kPendingFree) continue;
    sums.active += block.size_bytes;
    sums.requested += block.requested_bytes.value_or(block.size_bytes);
  }
  return sums;
}

// Of the first item that has one.
int rank_of(const Trace& trace) {
  if (!trace.devices.empty()) return trace.devices.front().rank;
  if (!trace.segments.empty()) return trace.segments.front().rank;
  return trace.annotations.empty() ? 0 : trace.annotations.front().rank;
}

class SnapshotWriter {
 public:
  SnapshotWriter(const Trace& trace, const Progress& progress)
      : trace_(trace),
        progress_(progress),
        is_ours_(trace.origin == Origin::kHeadroom),
        string_slots_(trace.strings.size()),
        frame_slots_(trace.stacks.frame_count()),
        stack_slots_(trace.stacks.size()) {
    while (empty_stack_ + 1 < trace.stacks.size()) {
      if (trace.stacks.frame_ids(++empty_stack_).empty()) return;
    }
    empty_stack_ = 0;
  }

  [[nodiscard]] std::string write() && {
    if (trace_.is_bare_list) {
      segments(false);
    } else {
      top();
    }
    return std::move(out_).finish();
  }

 private:
  void top() {
    out_.begin_dict();
    out_.literal("segments");
    segments(false);
    out_.literal("device_traces");
    histories(false);
    if (trace_.settings) {
      out_.literal("allocator_settings");
      out_.value(*trace_.settings);
    }
    if (trace_.has_annotations || !trace_.annotations.empty()) annotations();
    if (trace_.has_host) {
      out_.literal("host_segments");
      segments(true);
      out_.literal("host_traces");
      histories(true);
    }
    if (!trace_.producer.empty()) ours();
    extras(trace_.top_level_extras);
    out_.end_dict();
  }

  // Our reader takes these back, and others ignore them.
  void ours() {
    out_.literal("producer");
    out_.text(trace_.producer);
    if (const int rank = rank_of(trace_); rank != 0) {
      out_.literal("rank");
      out_.integer(rank);
    }
    const auto has_dropped = [](const DeviceTrace& device) { return device.dropped_events != 0; };
    if (std::ranges::none_of(trace_.devices, has_dropped)) return;
    out_.literal("dropped_events");
    out_.list(trace_.devices.size(),
              [&](std::size_t i) { out_.size(trace_.devices[i].dropped_events); });
  }

  void segments(bool is_host) {
    std::vector<const Segment*> found;
    for (const Segment& segment : trace_.segments) {
      if (segment.is_host == is_host) found.push_back(&segment);
    }
    out_.list(found.size(), [&](std::size_t i) { segment(*found[i]); });
  }

  void segment(const Segment& segment) {
    out_.begin_dict();
    member("device", std::int64_t{segment.device});
    member("address", segment.address);
    member("total_size", segment.size_bytes);
    segment_sums(segment);
    member("stream", segment.stream);
    out_.literal("segment_type");
    out_.literal(segment.is_small ? "small" : "large");
    if (segment.pool || is_ours_) {
      const memory::PoolId pool = segment.pool.value_or(memory::PoolId{});
      out_.literal("segment_pool_id");
      out_.pair(pool.graph, pool.user);
    }
    if (segment.is_expandable || is_ours_) {
      out_.literal("is_expandable");
      out_.boolean(segment.is_expandable.value_or(false));
    }
    frames(segment.stack, is_ours_);
    details(segment.details);
    out_.literal("blocks");
    DeviceAddress next = segment.address;
    out_.list(segment.blocks.size(), [&](std::size_t i) {
      block(segment.blocks[i], next);
      next += segment.blocks[i].size_bytes;
    });
    out_.end_dict();
  }

  // PyTorch's tools want them; ours add them up.
  void segment_sums(const Segment& segment) {
    std::optional<std::uint64_t> allocated = segment.allocated_bytes;
    std::optional<std::uint64_t> active = segment.active_bytes;
    std::optional<std::uint64_t> requested = segment.requested_bytes;
    if (is_ours_) {
      const Sums sums = sums_of(segment);
      allocated = allocated.value_or(sums.allocated);
      active = active.value_or(sums.active);
      requested = requested.value_or(sums.requested);
    }
    if (allocated) member("allocated_size", *allocated);
    if (active) member("active_size", *active);
    if (requested) member("requested_size", *requested);
  }

  void block(const Block& block, DeviceAddress summed_address) {
    out_.begin_dict();
    if (block.address || is_ours_) member("address", block.address.value_or(summed_address));
    member("size", block.size_bytes);
    if (block.requested_bytes || is_ours_) {
      member("requested_size", block.requested_bytes.value_or(block.size_bytes));
    }
    out_.literal("state");
    out_.literal(state_name(block.state));
    frames(block.stack, is_ours_);
    details(block.details);
    out_.end_dict();
  }

  void histories(bool is_host) {
    std::vector<const DeviceTrace*> by_device;
    for (const DeviceTrace& device : trace_.devices) {
      if (device.is_host != is_host) continue;
      if (device.device < 0) return history(device.events);  // one list, of no device
      const auto place = static_cast<std::size_t>(device.device);
      if (by_device.size() <= place) by_device.resize(place + 1);
      by_device[place] = &device;
    }
    const Events none;
    out_.list(by_device.size(), [&](std::size_t i) {
      history(by_device[i] != nullptr ? by_device[i]->events : none);
    });
  }

  void history(const Events& events) {
    out_.list(events.size(), [&](std::size_t i) {
      entry(events[i]);
      if (++events_written_ % kReportEvents == 0 && progress_) report();
    });
  }

  void report() const {
    const auto count = static_cast<double>(trace_.event_count());
    progress_(static_cast<double>(events_written_) / count);
  }

  void entry(const Entry& entry) {
    out_.begin_dict();
    if (entry.action != Action::kUnknown) {  // else its name is among the extras
      out_.literal("action");
      out_.literal(to_string(entry.action));
    }
    member(entry.action == Action::kOutOfMemory ? "device_free" : "addr", entry.address);
    member("size", entry.size_bytes);
    member("stream", entry.stream);
    if (trace_.details[entry.details].has_time) member("time_us", entry.time_us);
    details(entry.details);
    frames(entry.stack, false);
    out_.end_dict();
  }

  void details(DetailsId id) {
    const Details& details = trace_.details[id];
    if (details.compile_context) member_string("compile_context", *details.compile_context);
    if (details.user_metadata) member_string("user_metadata", *details.user_metadata);
    if (details.pool) {
      out_.literal("pool_id");
      out_.pair(details.pool->graph, details.pool->user);
    }
    if (details.category) {
      out_.literal("category");
      out_.literal(to_string(*details.category));
    }
    if (details.forward_frames) {
      const std::vector<StringId>& lines = *details.forward_frames;
      out_.literal("forward_frames");
      out_.list(lines.size(), [&](std::size_t i) { string(lines[i]); });
    }
    extras(details.extras);
  }

  void extras(std::uint32_t id) {
    if (const auto* dict = std::get_if<Value::Dict>(&trace_.extras[id].data)) out_.members(*dict);
  }

  void frames(StackId stack, bool always) {
    if (stack == 0 && !always) return;
    out_.literal("frames");
    if (stack == 0) stack = empty_stack_;  // one list for both
    const auto ids = trace_.stacks.frame_ids(stack);
    out_.shared_list(ids.size(), stack_slots_[stack], [&](std::size_t i) { frame(ids[i]); });
  }

  void frame(std::uint32_t id) {
    PickleSink::Slot& slot = frame_slots_[id];
    if (out_.again(slot)) return;
    const Frame& frame = trace_.stacks.frame(id);
    out_.begin_dict();
    member_string("name", frame.name);
    member_string("filename", frame.file);
    member("line", frame.line);
    extras(frame.extras);
    out_.end_dict();
    out_.remember(slot);
  }

  void annotations() {
    out_.literal("external_annotations");
    out_.list(trace_.annotations.size(), [&](std::size_t i) {
      const Annotation& annotation = trace_.annotations[i];
      out_.begin_dict();
      member_string("name", annotation.name);
      out_.literal("stage");
      out_.literal(annotation.is_start ? "START" : "END");
      member("device", std::int64_t{annotation.device});
      member("time_us", annotation.time_us);
      extras(annotation.extras);
      out_.end_dict();
    });
  }

  void member(std::string_view key, std::uint64_t value) {
    out_.literal(key);
    out_.size(value);
  }
  void member(std::string_view key, std::int64_t value) {
    out_.literal(key);
    out_.integer(value);
  }
  void member_string(std::string_view key, StringId value) {
    out_.literal(key);
    string(value);
  }
  void string(StringId id) { out_.shared_text(trace_.strings[id], string_slots_[id]); }

  const Trace& trace_;
  const Progress& progress_;
  const bool is_ours_;
  PickleSink out_;
  std::vector<PickleSink::Slot> string_slots_;
  std::vector<PickleSink::Slot> frame_slots_;
  std::vector<PickleSink::Slot> stack_slots_;
  StackId empty_stack_ = 0;  // the stack without frames, 0 if there is none
  std::size_t events_written_ = 0;
};

// Why a snapshot has no place for this trace, if it has none.
std::optional<std::string> obstacle_of(const Trace& trace) {
  const auto is_other = [rank = rank_of(trace)](const auto& item) { return item.rank != rank; };
  if (std::ranges::any_of(trace.devices, is_other) ||
      std::ranges::any_of(trace.segments, is_other) ||
      std::ranges::any_of(trace.annotations, is_other)) {
    return "the recording has several ranks, and a PyTorch snapshot holds one: write .hrt";
  }
  const auto is_odd = [](const DeviceTrace& device) {
    return device.device > kMaxDevice || (device.device < 0 && !device.is_host);
  };
  const auto odd = std::ranges::find_if(trace.devices, is_odd);
  if (odd == trace.devices.end()) return std::nullopt;
  return "a PyTorch snapshot numbers its devices from 0 on, and the recording has a device " +
         std::to_string(odd->device) + ": write .hrt";
}

}  // namespace

FormatResult<std::string> write_pickle(const Trace& trace, const Progress& progress) {
  if (auto obstacle = obstacle_of(trace)) {
    return Unexpected(FormatError{.message = *std::move(obstacle)});
  }
  try {
    return SnapshotWriter(trace, progress).write();
  } catch (const internal::Failure& failure) {
    return Unexpected(failure.error);
  } catch (const std::bad_alloc&) {
    return Unexpected(FormatError{.message = "there is not enough memory to write the snapshot"});
  }
}

}  // namespace headroom::trace
