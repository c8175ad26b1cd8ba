#include "headroom/trace/record/ring_recorder.h"

#include <algorithm>
#include <array>
#include <bit>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/base/tick_clock.h"
#include "headroom/trace/record/internal/capture.h"
#include "headroom/trace/record/internal/event_record.h"
#include "headroom/trace/record/internal/lazy_memory.h"
#include "headroom/trace/record/internal/stack_interner.h"
#include "headroom/trace/record/internal/trace_builder.h"
#include "headroom/trace/record/symbols.h"

namespace headroom::trace {

using internal::EventRecord;
using internal::StackInterner;

namespace {

constexpr std::uint64_t kRecordBytes = sizeof(EventRecord);

std::uint64_t capacity_of(const RingOptions& options) {
  const std::uint64_t events = options.capacity_bytes != 0
                                   ? std::bit_floor(options.capacity_bytes / kRecordBytes)
                                   : options.capacity_events;
  if (events == 0 || events > 1_TiB / kRecordBytes) {
    throw InvalidArgument("a ring of events needs room for 1 event to " +
                          format_count(1_TiB / kRecordBytes) + " (64 bytes each), not " +
                          format_count(events));
  }
  return std::bit_ceil(events);
}

}  // namespace

// The events of the ring in order, and the raw stacks they name.
struct RingRecorder::Copy {
  std::vector<EventRecord> records;
  std::vector<std::vector<std::uint64_t>> stacks;
  std::uint64_t dropped = 0;
};

RingRecorder::RingRecorder(RingOptions options)
    : options_(options),
      mask_(capacity_of(options) - 1),
      is_quick_(has_steady_counter() && options.stacks.mode == StackMode::kNone),
      memory_(std::make_unique<internal::LazyMemory>((mask_ + 1) * kRecordBytes)),
      words_(memory_->as<std::uint64_t>()),
      stacks_(std::make_unique<StackInterner>()),
      clock_(std::make_unique<TickClock>()) {}

RingRecorder::~RingRecorder() = default;

void RingRecorder::record(const memory::Event& event) noexcept {
  if (is_quick_) [[likely]] {
    return keep(event, counter_ticks(), StackInterner::kNone);
  }
  record_slowly(event, __builtin_frame_address(0));
}

void RingRecorder::record_slowly(const memory::Event& event, const void* frame) noexcept {
  const bool has_stack = internal::wants_stack(options_.stacks.mode, event.action);
  const std::uint32_t stack = has_stack ? stack_id(frame) : StackInterner::kNone;
  keep(event, ticks(), stack);
}

// A snapshot reads slots while they may be written. Each word is written after started_ said that
// its slot is given up, and read before started_ is looked at; so what could be torn is known.
inline void RingRecorder::keep(const memory::Event& event,
                               std::uint64_t ticks,
                               std::uint32_t stack) noexcept {
  const std::uint64_t at = next_.load(std::memory_order_relaxed);
  if (at == 0) first_sequence_.store(event.sequence, std::memory_order_relaxed);
  std::uint64_t* slot = words_ + (at & mask_) * EventRecord::kWords;
  started_.store(at + 1, std::memory_order_relaxed);
  EventRecord::write(event, ticks, stack, [slot](std::size_t i, std::uint64_t word) {
    std::atomic_ref(slot[i]).store(word, std::memory_order_release);
  });
  next_.store(at + 1, std::memory_order_release);
  __builtin_prefetch(words_ + ((at + EventRecord::kAhead) & mask_) * EventRecord::kWords, 1);
}

std::uint32_t RingRecorder::stack_id(const void* frame) noexcept {
  std::array<std::uint64_t, kMostFrames> buffer;  // filled as far as it is used
  const auto addresses = internal::capture(options_.stacks, frame, buffer);
  const std::uint64_t hash = StackInterner::hash_of(addresses);
  const std::uint32_t known = stacks_->find(addresses, hash);
  if (known != StackInterner::kNone) return known;
  const std::lock_guard lock(stacks_mutex_);
  return stacks_->add(addresses, hash);
}

std::uint64_t RingRecorder::recorded_events() const noexcept {
  return next_.load(std::memory_order_relaxed);
}

std::uint64_t RingRecorder::dropped_events() const noexcept {
  const std::uint64_t recorded = recorded_events();
  return recorded > capacity() ? recorded - capacity() : 0;
}

RingRecorder::Copy RingRecorder::copy(std::optional<std::uint64_t> until_sequence) const {
  if (made_.is_forked()) throw Forked();
  std::uint64_t end = next_.load(std::memory_order_acquire);
  if (until_sequence) {
    const std::uint64_t first = first_sequence_.load(std::memory_order_relaxed);
    end = std::min(end, *until_sequence > first ? *until_sequence - first : 0);
  }
  const std::uint64_t begin = end > capacity() ? end - capacity() : 0;
  Copy out;
  out.records.resize(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) {
    std::uint64_t* slot = words_ + (i & mask_) * EventRecord::kWords;
    EventRecord& record = out.records[i - begin];
    for (std::size_t k = 0; k < EventRecord::kWords; ++k) {
      record.words[k] = std::atomic_ref(slot[k]).load(std::memory_order_acquire);
    }
  }
  // Those whose slots were given up meanwhile.
  const std::uint64_t now = started_.load(std::memory_order_acquire);
  const std::uint64_t oldest = now > capacity() ? now - capacity() : 0;
  if (oldest > begin) {
    const std::uint64_t lost = std::min(oldest - begin, end - begin);
    out.records.erase(out.records.begin(), out.records.begin() + static_cast<std::ptrdiff_t>(lost));
  }
  out.dropped = end - out.records.size();
  const std::lock_guard lock(stacks_mutex_);
  for (std::uint32_t id = 0; id < stacks_->size(); ++id) {
    const auto addresses = (*stacks_)[id];
    out.stacks.emplace_back(addresses.begin(), addresses.end());
  }
  return out;
}

void RingRecorder::append_to(Trace& trace,
                             internal::TraceBuilder& builder,
                             const DeviceKey& key,
                             std::optional<std::uint64_t> until_sequence) const {
  const Copy copied = copy(until_sequence);
  std::vector<std::optional<StackId>> ids(copied.stacks.size());
  if (!ids.empty()) ids[StackInterner::kNone] = 0;
  trace.devices.push_back({.device = key.device,
                           .rank = key.rank,
                           .is_host = key.is_host,
                           .dropped_events = copied.dropped});
  Events& events = trace.devices.back().events;
  events.reserve(copied.records.size());
  const std::lock_guard lock(clock_mutex_);
  clock_->adjust();
  for (const EventRecord& record : copied.records) {
    std::optional<StackId>& stack = ids[record.stack()];
    if (!stack) stack = builder.stack(copied.stacks[record.stack()]);
    events.push_back(builder.entry(record, *clock_, *stack));
  }
}

Trace RingRecorder::snapshot(const DeviceKey& key) const {
  Trace trace;
  trace.origin = Origin::kHeadroom;
  internal::TraceBuilder builder(trace);
  append_to(trace, builder, key);
  if (options_.stacks.symbolise) symbolise(trace);
  return trace;
}

}  // namespace headroom::trace
