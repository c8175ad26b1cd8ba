#include "headroom/replay/program.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/replay/internal/compiler.h"
#include "headroom/replay/player.h"
#include "headroom/trace/settings.h"

namespace headroom::replay {

using analysis::kNoEvent;
using analysis::Lifetime;
using memory::kMinBlockBytes;
using trace::Action;
using trace::Events;

namespace {

class Translator {
 public:
  Translator(Program& program, const analysis::Lifetimes& lifetimes)
      : program_(program),
        lifetimes_(lifetimes),
        events_(program.device->events),
        routes_(program),
        slot_of_(lifetimes.all.size(), kNoSlot) {}

  void run() {
    program_.pools = routes_.pools();
    number_streams();
    program_.ops.reserve(events_.size() * 2 / 3 + 16);
    program_.op_events.reserve(events_.size() * 2 / 3 + 16);
    add_start();
    for (std::size_t i = 0; i < events_.size(); ++i) add(i);
    program_.slot_count = next_slot_;
    program_.peak_live_if_served = std::max(program_.peak_live, most_if_served_);
  }

 private:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;

  void number_streams() {
    program_.streams = {StreamId::kDefault};
    for (const std::uint64_t stream : events_.streams()) stream_of_.push_back(number_of(stream));
    for (const memory::SegmentInfo& segment : program_.start.segments) {
      (void)number_of(device::to_integer(segment.stream));
    }
    if (program_.streams.size() > std::numeric_limits<std::uint16_t>::max()) {
      throw Error("replay: the recording names " + std::to_string(program_.streams.size()) +
                  " streams; 65,535 is the most there can be");
    }
  }

  std::uint16_t number_of(std::uint64_t stream) {
    const auto id = static_cast<StreamId>(stream);
    const auto found = std::ranges::find(program_.streams, id);
    const auto number = static_cast<std::uint16_t>(found - program_.streams.begin());
    if (found == program_.streams.end()) program_.streams.push_back(id);
    return number;
  }

  std::uint32_t take_slot(std::uint32_t lifetime) {
    std::uint32_t slot = next_slot_;
    if (free_slots_.empty()) {
      ++next_slot_;
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    slot_of_[lifetime] = slot;
    return slot;
  }

  void give_back_slot(std::uint32_t lifetime) {
    free_slots_.push_back(std::exchange(slot_of_[lifetime], kNoSlot));
  }

  void add_start() {
    // Initial lifetimes come first, in the order of start.live.
    std::size_t segment = 0;
    const auto& segments = program_.start.segments;
    for (std::uint32_t id = 0; id < program_.start.live.size(); ++id) {
      const analysis::StartBlock& block = program_.start.live[id];
      while (segment < segments.size() &&
             segments[segment].address + segments[segment].size_bytes <= block.address) {
        ++segment;
      }
      const bool is_inside =
          segment < segments.size() && segments[segment].address <= block.address;
      const auto stream =
          is_inside ? number_of(device::to_integer(segments[segment].stream)) : std::uint16_t{0};
      program_.start_slots.push_back({.address = block.address,
                                      .requested_bytes = block.requested_bytes,
                                      .hold = hold_of(id),
                                      .slot = take_slot(id),
                                      .stream = stream,
                                      .is_pending = block.is_pending});
      add_live(lifetimes_.all[id]);
    }
    program_.peak_live = live_;
  }

  void push(std::size_t event, Op op) {
    program_.ops.push_back(op);
    program_.op_events.push_back(static_cast<std::uint32_t>(event));
  }

  void add(std::size_t i) {
    switch (events_.action(i)) {
      case Action::kAlloc:
        add_odd_ends(i);
        allocate(i);
        break;
      case Action::kFreeRequested:
        request_free(i);
        break;
      case Action::kFreeCompleted:
        complete_free(i);
        break;
      case Action::kOutOfMemory:
        if (!program_.first_failure_op) program_.first_failure_op = program_.ops.size();
        ++program_.failures;
        most_if_served_ =
            std::max(most_if_served_, live_ + round_up(events_.size_bytes(i), kMinBlockBytes));
        push(i,
             {.size_bytes = events_.size_bytes(i),
              .stream = stream_of_[events_.stream_index(i)],
              .kind = OpKind::kFailed});
        break;
      default:
        break;
    }
  }

  // A block ends without a word where another is allocated at its place.
  void add_odd_ends(std::size_t i) {
    while (next_odd_end_ < lifetimes_.odd_ends.size() &&
           lifetimes_.odd_ends[next_odd_end_].event <= i) {
      const std::uint32_t id = lifetimes_.odd_ends[next_odd_end_++].lifetime;
      if (slot_of_[id] != kNoSlot) end(i, id, OpKind::kFree);
    }
  }

  void allocate(std::size_t i) {
    const std::uint32_t id = lifetimes_.of_event[i];
    if (id == kNoEvent) return;
    ++program_.allocs;
    push(i,
         {.size_bytes = events_.size_bytes(i),
          .slot = take_slot(id),
          .stream = stream_of_[events_.stream_index(i)],
          .kind = OpKind::kAllocate,
          .pool = routes_.pool_of(i)});
    add_live(lifetimes_.all[id]);
    if (live_ > program_.peak_live) {
      program_.peak_live = live_;
      program_.peak_live_op = program_.ops.size() - 1;
    }
  }

  void request_free(std::size_t i) {
    const std::uint32_t id = lifetimes_.of_event[i];
    if (id == kNoEvent || slot_of_[id] == kNoSlot) return;
    const Lifetime& lifetime = lifetimes_.all[id];
    if (lifetime.free_event != i) return;  // asked for twice
    if (lifetime.end_event == i || lifetime.end_event == i + 1) {
      end(i, id, OpKind::kFree);
    } else {
      push(i, {.size_bytes = hold_of(id), .slot = slot_of_[id], .kind = OpKind::kFreeHeld});
    }
  }

  void complete_free(std::size_t i) {
    const std::uint32_t id = lifetimes_.of_event[i];
    if (id == kNoEvent || slot_of_[id] == kNoSlot) return;  // freed and completed in one
    const Lifetime& lifetime = lifetimes_.all[id];
    const bool was_requested = lifetime.free_event != kNoEvent || lifetime.is_pending_at_start;
    end(i, id, was_requested ? OpKind::kComplete : OpKind::kFree);
  }

  void end(std::size_t i, std::uint32_t id, OpKind kind) {
    const std::uint64_t hold = kind == OpKind::kComplete ? hold_of(id) : 0;
    push(i, {.size_bytes = hold, .slot = slot_of_[id], .kind = kind});
    live_ -= lifetimes_.all[id].live_bytes();
    give_back_slot(id);
  }

  // The event that completes it; past all of them where none does.
  [[nodiscard]] std::uint64_t hold_of(std::uint32_t id) const {
    const std::uint32_t end = lifetimes_.all[id].end_event;
    return end != kNoEvent ? end : events_.size() + id;
  }

  void add_live(const Lifetime& lifetime) { live_ += lifetime.live_bytes(); }

  Program& program_;
  const analysis::Lifetimes& lifetimes_;
  const Events& events_;
  internal::PoolRoutes routes_;
  std::vector<std::uint32_t> slot_of_;  // by lifetime
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t next_slot_ = 0;
  std::size_t next_odd_end_ = 0;
  std::vector<std::uint16_t> stream_of_;  // by the recording's numbers
  std::uint64_t live_ = 0;
  std::uint64_t most_if_served_ = 0;  // at the failures
};

}  // namespace

// The fields a version added are in every entry it writes; the youngest field found decides.
RecordedVersion recorded_version(const trace::Trace& trace) {
  RecordedVersion out{.version = memory::kPyTorch29};
  const auto at_least = [&](memory::PyTorchVersion version) {
    out.is_known = true;
    out.version = std::max(out.version, version);
  };
  if (trace.origin == trace::Origin::kHeadroom) at_least(memory::PyTorchVersion{});
  if (trace.has_host) at_least(memory::kPyTorch214);
  for (std::uint32_t i = 0; i < trace.details.size(); ++i) {
    const trace::Details& details = trace.details[i];
    if (details.pool) at_least(memory::kPyTorch212);
    if (details.forward_frames) at_least(memory::kPyTorch211);
    if (details.user_metadata) at_least(memory::kPyTorch210);
  }
  // Nothing but the tie-break and corners differ up to 2.12; 2.11 stands for them.
  if (!out.is_known) out.version = memory::kPyTorch211;
  return out;
}

std::int64_t Program::time_us_at(std::size_t op) const {
  if (op_events.empty() || device->events.empty()) return 0;
  const std::size_t event = op_events[std::min(op, op_events.size() - 1)];
  return device->events.time_us(std::min(event, device->events.size() - 1));
}

std::uint64_t Program::duration_us(std::size_t from_op) const {
  const std::int64_t begin = time_us_at(from_op);
  const std::int64_t end = time_us_at(ops.empty() ? 0 : ops.size() - 1);
  return end > begin ? static_cast<std::uint64_t>(end - begin) : 0;
}

Program compile(const trace::Trace& trace,
                const trace::DeviceTrace& device,
                const CompileOptions& options) {
  if (device.is_host) throw Error("replay: a history of pinned memory has no device to replay on");
  Program program;
  program.trace = &trace;
  program.device = &device;
  program.events = device.events.size();
  program.start = analysis::start_state(trace, device);
  program.is_of_paged = trace::is_of_paged(trace);
  if (!program.is_of_paged) program.conf = trace.settings_string();
  program.config = trace::recorded_config(trace);
  const RecordedVersion recorded = recorded_version(trace);
  program.version = options.version.value_or(recorded.version);
  program.is_version_known = options.version.has_value() || recorded.is_known;
  const analysis::Lifetimes lifetimes = analysis::pair_lifetimes(trace, device, program.start);
  program.anomalies = lifetimes.anomalies;
  Translator(program, lifetimes).run();
  program.start_reservations =
      internal::find_reservations(program, options.card_bytes.value_or(kDefaultCardBytes));
  program.limit = recorded_limit(trace, device, program.start);
  return program;
}

Program from_live_blocks(Program program) {
  if (program.is_whole()) return program;
  std::vector<Op> ops;
  std::vector<std::uint32_t> op_events;
  for (const StartSlot& start : program.start_slots) {
    ops.push_back({.size_bytes = start.requested_bytes,
                   .slot = start.slot,
                   .stream = start.stream,
                   .kind = OpKind::kAllocate});
  }
  for (const StartSlot& start : program.start_slots) {
    if (!start.is_pending) continue;
    ops.push_back({.size_bytes = start.hold, .slot = start.slot, .kind = OpKind::kFreeHeld});
  }
  op_events.assign(ops.size(), 0);
  const std::size_t added = ops.size();
  program.allocs += program.start_slots.size();
  program.peak_live_op += added;
  if (program.first_failure_op) *program.first_failure_op += added;
  ops.insert(ops.end(), program.ops.begin(), program.ops.end());
  op_events.insert(op_events.end(), program.op_events.begin(), program.op_events.end());
  program.ops = std::move(ops);
  program.op_events = std::move(op_events);
  program.starts_with_live_blocks = true;
  program.start = {};
  program.start_slots.clear();
  program.start_reservations.clear();
  return program;
}

std::vector<const trace::DeviceTrace*> replayable(const trace::Trace& trace) {
  std::vector<const trace::DeviceTrace*> devices;
  for (const trace::DeviceTrace& device : trace.devices) {
    if (!device.is_host && !device.events.empty()) devices.push_back(&device);
  }
  return devices;
}

}  // namespace headroom::replay
