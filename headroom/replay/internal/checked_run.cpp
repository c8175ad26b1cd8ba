#include "headroom/replay/internal/checked_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/replay/internal/compiler.h"

namespace headroom::replay::internal {

using memory::Action;
using memory::SegmentInfo;

namespace {

// A block as seen from outside; requests are not compared, since stale ones are kept.
bool is_same_block(const memory::BlockInfo& a, const memory::BlockInfo& b) {
  return a.address == b.address && a.size_bytes == b.size_bytes && a.state == b.state;
}

bool is_same_segment(const SegmentInfo& a, const SegmentInfo& b) {
  return a.address == b.address && a.size_bytes == b.size_bytes && a.stream == b.stream &&
         a.is_small == b.is_small && a.is_expandable == b.is_expandable &&
         std::ranges::equal(a.blocks, b.blocks, is_same_block);
}

std::vector<SegmentInfo> final_segments(const Program& program) {
  std::vector<SegmentInfo> out;
  const trace::DeviceTrace& device = *program.device;
  for (const trace::Segment& segment : program.trace->segments) {
    if (segment.device != device.device || segment.rank != device.rank || segment.is_host) continue;
    SegmentInfo info{.address = segment.address,
                     .size_bytes = segment.size_bytes,
                     .stream = static_cast<StreamId>(segment.stream),
                     .is_small = segment.is_small,
                     .is_expandable = segment.is_expandable.value_or(false)};
    DeviceAddress at = segment.address;
    for (const trace::Block& block : segment.blocks) {
      const DeviceAddress address = block.address.value_or(at);
      info.blocks.push_back(
          {.address = address, .size_bytes = block.size_bytes, .state = block.state});
      at = address + block.size_bytes;
    }
    out.push_back(std::move(info));
  }
  std::ranges::sort(out, {}, &SegmentInfo::address);
  return out;
}

class CheckedPlayer {
 public:
  CheckedPlayer(const Program& program,
                const ReplayOptions& options,
                const Readings& readings,
                const CheckedRunOptions& how)
      : program_(program),
        options_(options),
        readings_(readings),
        how_(how),
        events_(program.device->events),
        machine_(program, options),
        gives_back_in_parts_(options.config.garbage_collection_threshold > 0 ||
                             options.config.max_split_bytes != memory::AllocatorConfig::kUnlimited),
        has_holds_(std::ranges::find(program.ops, OpKind::kFreeHeld, &Op::kind) !=
                   program.ops.end()) {
    machine_.watch().keeps_events = true;
  }

  CheckedRun run() {
    const auto started = std::chrono::steady_clock::now();
    const std::size_t samples = std::min(how_.timeline_samples, program_.ops.size());
    const std::size_t every = samples > 0 ? std::max<std::size_t>(program_.ops.size() / samples, 1)
                                          : program_.ops.size() + 1;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      machine_.watch().op = i;
      step(i);
      if (how_.stop_at_mismatch && out_.first_mismatch_event) break;
      if ((i + 1) % every == 0) timeline_.push_back(machine_.sample(i));
    }
    if (!how_.stop_at_mismatch || !out_.first_mismatch_event) flush_outputs(events_.size());
    finish();
    out_.verification.result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return std::move(out_);
  }

 private:
  void step(std::size_t i) {
    const Op& op = program_.ops[i];
    const std::uint32_t event = program_.op_events[i];
    switch (op.kind) {
      case OpKind::kAllocate:
      case OpKind::kFailed:
        allocate(op, event);
        group_ = event + 1;
        break;
      case OpKind::kFree:
        flush_outputs(event);
        group_ = event + 1;
        if (is_held_until_flush(i)) {
          machine_.free_held(op.slot, event);
          completions_.push_back({.hold = event, .event = event + 1});
        } else {
          machine_.free(op.slot);
        }
        break;
      case OpKind::kFreeHeld:
        flush_outputs(event);
        machine_.free_held(op.slot, op.size_bytes);
        group_ = event + 1;
        break;
      case OpKind::kComplete:
        completions_.push_back({.hold = op.size_bytes, .event = event});
        break;
      case OpKind::kEmptyCache:
        break;  // found again from the outputs
    }
  }

  // A held block whose free is completed by the flush of the very next request looks like one that
  // was free at once.
  [[nodiscard]] bool is_held_until_flush(std::size_t i) {
    std::size_t next = i + 1;
    while (next < program_.ops.size() && program_.ops[next].kind == OpKind::kComplete) ++next;
    if (next == program_.ops.size()) return false;
    const Op& op = program_.ops[next];
    const std::uint32_t event = program_.op_events[next];
    const bool is_failure = op.kind == OpKind::kFailed;
    if (!is_failure && (op.kind != OpKind::kAllocate || !has_release(event))) return false;
    const auto decided = readings_.find(event);
    if (decided != readings_.end()) return decided->second == Reading::kForcedByHold;
    return !gives_back_in_parts_ && (is_failure || has_holds_) && !may_grow(op) &&
           !machine_.caching().can_serve_from_cache(op.size_bytes, program_.streams[op.stream]);
  }

  [[nodiscard]] bool has_release(std::size_t last) const {
    for (std::size_t i = group_; i < last; ++i) {
      if (gives_back(events_.action(i))) return true;
    }
    return false;
  }

  // The recorded outputs [group_, event) come from this request, or from an emptied cache before.
  void allocate(const Op& op, std::uint32_t event) {
    place(event);
    const bool releases = has_release(event);
    if (!releases && op.kind == OpKind::kAllocate) {
      complete_until(event);
    } else {
      const Reading reading = choose(op, event);
      out_.choices.emplace_back(event, reading);
      if (reading == Reading::kEmptiedByHand) {
        complete_until(event);
        empty_cache(event);
      } else if (reading == Reading::kForcedLate) {
        complete_until(first_release(event));
      }
    }
    DeviceAddress address = machine_.try_allocate(op);
    if (address == 0 && machine_.was_refused_place()) address = try_elsewhere(op);
    machine_.device().forget_places();
    complete_until(event);  // what a flush has not completed by now
    compare_outputs(event);
    if (address == 0) ++failures_;
    if (op.kind == OpKind::kAllocate) {
      if (address != events_.address(event)) mismatch_address(event, address);
    } else if (address != 0) {
      mismatch_address(event, address);
      machine_.allocator().free(address);
    }
  }

  // Once we have left the recording's path, a recorded place may be taken.
  DeviceAddress try_elsewhere(const Op& op) {
    machine_.device().forget_places();
    return machine_.try_allocate(op);
  }

  [[nodiscard]] Reading choose(const Op& op, std::uint32_t event) {
    const auto decided = readings_.find(event);
    return decided != readings_.end() ? decided->second : guess(op, event);
  }

  // PyTorch gives back only when it must: when neither the cache nor the device could serve, or
  // when garbage is collected. Otherwise the program asked for it.
  [[nodiscard]] Reading guess(const Op& op, std::uint32_t event) {
    memory::CachingAllocator& allocator = machine_.caching();
    if (!has_release(event)) return Reading::kForced;
    const StreamId stream = program_.streams[op.stream];
    if (allocator.can_serve_from_cache(op.size_bytes, stream)) return Reading::kEmptiedByHand;
    const std::uint64_t reserved = machine_.watch().reserved;
    const std::optional<std::uint64_t> limit = allocator.limit();
    const double threshold = options_.config.garbage_collection_threshold;
    if (limit && threshold > 0) {
      const auto allowed = static_cast<std::uint64_t>(threshold * static_cast<double>(*limit));
      if (reserved > allowed) return Reading::kForcedLate;
    }
    if (may_grow(op)) return Reading::kEmptiedByHand;
    return gives_back_in_parts_ ? Reading::kForcedLate : Reading::kForced;
  }

  [[nodiscard]] bool may_grow(const Op& op) {
    const std::uint64_t reserved = machine_.watch().reserved;
    const memory::AllocatorConfig& config = options_.config;
    const std::uint64_t rounded = memory::rounded_size(op.size_bytes, config);
    const std::uint64_t segment = memory::new_segment_size(rounded, config);
    if (reserved + segment > machine_.allocator().limit().value_or(UINT64_MAX)) return false;
    const std::uint64_t page =
        rounded <= memory::kSmallBytes ? memory::kSmallSegmentBytes : config.large_segment_bytes;
    const std::uint64_t taken = config.expandable_segments ? round_up(rounded, page) : segment;
    return reserved + taken <= options_.card_bytes - options_.outside_bytes;
  }

  [[nodiscard]] std::size_t first_release(std::size_t last) const {
    for (std::size_t i = group_; i < last; ++i) {
      if (gives_back(events_.action(i))) return i;
    }
    return last;
  }

  // The driver's answers: the addresses it gave.
  void place(std::size_t last) {
    bool has_reservation = false;
    for (std::size_t i = group_; i < last; ++i) {
      const DeviceAddress address = events_.address(i);
      if (events_.action(i) == Action::kSegmentAlloc) {
        machine_.device().place_next_segment(address);
      } else if (events_.action(i) == Action::kSegmentMap && !has_reservation &&
                 !machine_.device().owns_range(address, 1)) {
        has_reservation = true;
        machine_.device().place_next_reservation(address);
      }
    }
  }

  void complete_until(std::size_t last) {
    auto done = completions_.begin();
    for (; done != completions_.end() && done->event < last; ++done) machine_.complete(done->hold);
    completions_.erase(completions_.begin(), done);
  }

  void empty_cache(std::size_t event) {
    machine_.empty_cache();
    out_.verification.empty_caches.push_back(static_cast<std::uint32_t>(event));
  }

  // Outputs with no request behind them: the program emptied the cache, or frees completed.
  void flush_outputs(std::size_t last) {
    if (group_ >= last && completions_.empty()) return;
    const bool releases = has_release(last);
    if (!completions_.empty() || releases) {
      complete_until(last);
      machine_.allocator().process_events();
      if (releases) empty_cache(last);
    }
    compare_outputs(last);
    group_ = last;
  }

  // The segments we took and gave back since the last comparison against the recorded ones.
  void compare_outputs(std::size_t last) {
    const std::vector<memory::Event> ours = std::exchange(machine_.watch().events, {});
    std::size_t next = 0;
    for (std::size_t i = group_; i < last; ++i) {
      if (!is_segment_event(events_.action(i))) continue;
      if (next >= ours.size()) {
        mismatch_segment(i, describe(events_, i), "nothing");
      } else if (!is_same(i, ours[next])) {
        mismatch_segment(i, describe(events_, i), describe(ours[next]));
      }
      ++next;
    }
    for (; next < ours.size(); ++next) {
      mismatch_segment(std::min(last, events_.size() - 1), "nothing", describe(ours[next]));
    }
  }

  [[nodiscard]] bool is_same(std::size_t i, const memory::Event& ours) const {
    return events_.action(i) == ours.action && events_.address(i) == ours.address &&
           events_.size_bytes(i) == ours.size_bytes &&
           events_.stream(i) == device::to_integer(ours.stream);
  }

  void note_first(std::size_t event) {
    if (!out_.first_mismatch_event) out_.first_mismatch_event = static_cast<std::uint32_t>(event);
  }

  void mismatch_segment(std::size_t event, std::string recorded, std::string ours) {
    ++out_.verification.segment_mismatches;
    note_first(event);
    if (out_.verification.first) return;
    out_.verification.first = {
        .event = event, .recorded = std::move(recorded), .ours = std::move(ours)};
  }

  void mismatch_address(std::uint32_t event, DeviceAddress address) {
    ++out_.verification.address_mismatches;
    note_first(event);
    if (out_.verification.first || how_.stop_at_mismatch) return;
    out_.verification.first = explain_allocation(program_, event, address, machine_.caching());
  }

  void finish() {
    Verification& v = out_.verification;
    v.has_same_end = std::ranges::equal(
        machine_.allocator().segments(), final_segments(program_), is_same_segment);
    machine_.finish(v.result);
    v.result.timeline = std::move(timeline_);
    v.result.ooms = failures_;
    v.result.fits = failures_ == 0;
    v.version = options_.version;
    v.card_bytes = options_.card_bytes;
    v.limit_bytes = machine_.allocator().limit();
  }

  struct Completion {
    std::uint64_t hold = 0;
    std::uint32_t event = 0;
  };

  const Program& program_;
  const ReplayOptions& options_;
  const Readings& readings_;
  const CheckedRunOptions how_;
  const trace::Events& events_;
  Machine machine_;
  bool gives_back_in_parts_;  // a request may give a little back, without a flush
  bool has_holds_;
  std::size_t group_ = 0;  // the first output that belongs to the next input
  std::vector<Completion> completions_;
  std::uint64_t failures_ = 0;
  std::vector<TimelineSample> timeline_;
  CheckedRun out_;
};

}  // namespace

CheckedRun run_checked(const Program& program,
                       const ReplayOptions& options,
                       const Readings& readings,
                       const CheckedRunOptions& how) {
  return CheckedPlayer(program, options, readings, how).run();
}

}  // namespace headroom::replay::internal
