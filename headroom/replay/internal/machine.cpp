#include "headroom/replay/internal/machine.h"

#include <algorithm>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/replay/internal/start.h"

namespace headroom::replay::internal {

using device::Call;
using memory::Action;

namespace {

// Every hold has a stream of its own, so that they complete one by one; those that complete
// together do so in the order of their numbers.
constexpr std::uint64_t kFirstPrivateStream = std::uint64_t{1} << 63U;

// Where no driver puts anything.
constexpr DeviceAddress kOutside = DeviceAddress{1} << 60U;

// How many ops pass between two looks at where the streams are: some milliseconds of a program.
constexpr std::size_t kStreamLag = 256;

#ifdef HEADROOM_VALIDATE
constexpr bool kChecksBound = true;
#else
constexpr bool kChecksBound = false;
#endif

StreamId private_stream(std::uint64_t hold) { return StreamId{kFirstPrivateStream + hold}; }

}  // namespace

void SegmentWatch::record(const memory::Event& event) noexcept {
  if (keeps_events) {
    try {
      events.push_back(event);
    } catch (...) {  // It shows as a mismatch.
      keeps_events = false;
    }
  }
  if (counts_handles_) return;
  const bool takes = event.action == Action::kSegmentAlloc || event.action == Action::kSegmentMap;
  takes ? take(event.size_bytes) : give_back(event.size_bytes);
}

void SegmentWatch::take(std::uint64_t size_bytes) noexcept {
  ++calls.device_allocs;
  reserved += size_bytes;
  if (reserved <= peak_reserved) return;
  peak_reserved = reserved;
  peak_op = op;
}

void SegmentWatch::give_back(std::uint64_t size_bytes) noexcept {
  ++calls.device_frees;
  reserved -= size_bytes;
}

void SegmentWatch::device_called(Call call, std::uint64_t size_bytes) noexcept {
  const device::CallCost* cost = nullptr;
  switch (call) {
    case Call::kAllocateSegment:
      cost = &costs_.allocate_segment;
      break;
    case Call::kFreeSegment:
      cost = &costs_.free_segment;
      break;
    case Call::kCreatePages:
      ++calls.handles_created;
      if (counts_handles_) take(size_bytes);
      cost = &costs_.create_pages;
      break;
    case Call::kReleasePages:
      if (counts_handles_) give_back(size_bytes);
      cost = &costs_.release_pages;
      break;
    case Call::kMapPages:
      ++calls.handles_mapped;
      cost = &costs_.map_pages;
      break;
    case Call::kUnmapPages:
      ++calls.handles_unmapped;
      cost = &costs_.unmap_pages;
      break;
    default:
      return;
  }
  const double us = cost->price_ns(size_bytes) / 1e3;
  calls.driver_us += us;
  if (op >= half_op_) second_half_us += us;
}

Machine::Machine(const Program& program, const ReplayOptions& options)
    : program_(program),
      options_(options),
      watch_(program.ops.size() / 2, options.paged.has_value()),
      addresses_(program.slot_count, 0) {
  build();
  if (!program.start.segments.empty() && !restore()) {
    // A state that contradicts itself: go on without it, as with a gap in the recording.
    result_.is_start_restored = false;
    std::ranges::fill(addresses_, 0);
    build();
  }
  before_ = allocator_->statistics();
  take_outside();
  start_counting();
}

// The state before the first event is there whatever the limit.
void Machine::start_counting() {
  if (options_.limit_bytes) {
    allocator_->set_limit(options_.limit_bytes);
  } else if (paged_ != nullptr && options_.config.memory_fraction != 1.0) {
    allocator_->set_memory_fraction(options_.config.memory_fraction);
  }
  watch_.reserved = static_cast<std::uint64_t>(before_.reserved_bytes.all.current);
  watch_.peak_reserved = watch_.reserved;
  allocator_->reset_peak_statistics();
  allocator_->reset_accumulated_statistics();
  allocator_->add_sink(watch_, memory::kSegmentActions);
  if (options_.sink != nullptr) allocator_->add_sink(*options_.sink);
  device_->set_watch(&watch_);
}

// The bytes of the context, other libraries and other processes, as far as there is room beside us.
void Machine::take_outside() {
  const std::uint64_t room = device_->memory_info().value().free_bytes;
  const std::uint64_t size = std::min(options_.outside_bytes, room);
  if (size == 0) return;
  device_->place_next_segment(kOutside);
  (void)device_->allocate_segment(size);
  device_->forget_places();
}

Machine::~Machine() {
  device_->set_watch(nullptr);
  if (options_.sink != nullptr) allocator_->remove_sink(*options_.sink);
  allocator_->remove_sink(watch_);
}

void Machine::build() {
  allocator_.reset();
  // The state before the first event is there whatever card is asked about.
  const std::uint64_t card = std::max(options_.card_bytes, program_.start.reserved_bytes);
  device_ = device::MetaDevice::create({.capacity_bytes = std::max<std::uint64_t>(card, 2_MiB),
                                        .events = device::EventCompletion::kByHand,
                                        .addresses = options_.order,
                                        .clock = clock()});
  make_allocator();
  for (const StreamId stream : program_.streams) {
    (void)device_->adopt_stream(device::to_integer(stream)).value();
  }
}

std::function<std::chrono::nanoseconds()> Machine::clock() const {
  if (options_.work_us_per_request <= 0) return {};
  return [this] {
    const std::chrono::duration<double, std::micro> passed(
        static_cast<double>(requests_) * options_.work_us_per_request + watch_.calls.driver_us);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(passed);
  };
}

void Machine::make_allocator() {
  if (options_.paged) {
    auto paged = std::make_unique<memory::PagedAllocator>(*device_, *options_.paged);
    paged_ = paged.get();
    allocator_ = std::move(paged);
    return;
  }
  auto caching = std::make_unique<memory::CachingAllocator>(
      *device_, memory::CachingOptions{.config = options_.config, .version = options_.version});
  caching_ = caching.get();
  allocator_ = std::move(caching);
}

bool Machine::restore() { return paged_ != nullptr ? allocate_start() : restore_segments(); }

// The blocks alone, in order of address: another allocator would have had other segments.
bool Machine::allocate_start() {
  std::vector<const StartSlot*> slots;
  for (const StartSlot& start : program_.start_slots) slots.push_back(&start);
  std::ranges::sort(slots, {}, [](const StartSlot* start) { return start->address; });
  for (const StartSlot* start : slots) {
    const auto block =
        allocator_->try_allocate(start->requested_bytes, program_.streams[start->stream]);
    if (!block) return false;
    addresses_[start->slot] = *block;
  }
  for (const StartSlot* start : slots) {
    if (start->is_pending) free_held(start->slot, start->hold);
  }
  return true;
}

bool Machine::restore_segments() {
  const auto layout_or = lay_out_start(program_, *device_);
  if (!layout_or) return false;
  const StartLayout& layout = *layout_or;
  if (!caching_->restore(layout.segments, layout.reservations)) return false;
  for (const StartSlot& start : program_.start_slots) {
    if (!layout.contains(start.address)) continue;  // a block that lies in no segment
    addresses_[start.slot] = start.address;
    if (start.is_pending) free_held(start.slot, start.hold);
  }
  return true;
}

// --- Ops -----------------------------------------------------------------------------------------

bool Machine::run(std::size_t first, std::size_t last) {
  const Op* const ops = program_.ops.data();
  const StreamId* const streams = program_.streams.data();
  memory::Allocator& allocator = *allocator_;
  for (std::size_t i = first; i < last; ++i) {
    const Op& op = ops[i];
    watch_.op = i;
    switch (op.kind) {
      case OpKind::kAllocate: {
        ++requests_;
        const auto block = op.pool == 0 ? allocator.try_allocate(op.size_bytes, streams[op.stream])
                                        : allocate_in_pool(op);
        if (block) [[likely]] {
          addresses_[op.slot] = *block;
        } else {
          addresses_[op.slot] = 0;
          record_failure(op, block.error().report);
          if (options_.stop_at_failure) return false;
        }
        break;
      }
      case OpKind::kFree:
        allocator.free(addresses_[op.slot]);
        break;
      case OpKind::kFreeHeld:
        free_held(op.slot, op.size_bytes);
        break;
      case OpKind::kComplete:
        complete(op.size_bytes);
        break;
      case OpKind::kFailed:
        if (const DeviceAddress address = try_allocate(op); address != 0) {
          record_served(address);
        } else {
          record_failure(op, report_);
          if (options_.stop_at_failure) return false;
        }
        break;
      case OpKind::kEmptyCache:
        empty_cache();
        break;
    }
    if (paged_ != nullptr) look_after_paged(i);
  }
  return true;
}

void Machine::look_after_paged(std::size_t op) {
  if (op % kStreamLag == 0) let_streams_run();
  if (kChecksBound || options_.checks_bound) check_bound();
}

// A PagedAllocator asks the program's own streams where they are. They are behind the program by
// one look to two.
void Machine::let_streams_run() {
  marks_.resize(program_.streams.size(), device::EventId::kNone);
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i] != device::EventId::kNone) {
      (void)device_->complete_event(marks_[i]);
      (void)device_->release_event(marks_[i]);
    }
    marks_[i] = device_->record_event(program_.streams[i]).value_or(device::EventId::kNone);
  }
}

void Machine::check_bound() {
  if (result_.is_bound_exceeded()) return;
  const auto slack = [](const memory::PagedBound& bound) {
    return bound.live_pages_bytes + bound.slab_residue_bytes + bound.cushion_bytes +
           bound.unsettled_bytes - bound.reserved_bytes;
  };
  const memory::PagedBound now = paged_->bound();
  if (!result_.bound || !now.is_kept() || slack(now) < slack(result_.bound->bound)) {
    result_.bound = {.op = watch_.op, .bound = now};
  }
}

// For this one alone: while a pool is open, frees that wait for another stream wait for its end
// too.
memory::AllocationResult<DeviceAddress> Machine::allocate_in_pool(const Op& op) {
  const memory::PoolId pool = program_.pools[op.pool];
  allocator_->begin_allocate_to_pool(pool, nullptr);
  auto block = allocator_->try_allocate(op.size_bytes, program_.streams[op.stream]);
  allocator_->end_allocate_to_pool(pool);
  return block;
}

DeviceAddress Machine::try_allocate(const Op& op) {
  const auto block = op.pool == 0
                         ? allocator_->try_allocate(op.size_bytes, program_.streams[op.stream])
                         : allocate_in_pool(op);
  const DeviceAddress address = block ? *block : 0;
  was_refused_place_ = !block && block.error().reason == memory::FailureReason::kDevice;
  report_ = block ? nullptr : block.error().report;
  if (op.kind == OpKind::kAllocate) addresses_[op.slot] = address;
  return address;
}

void Machine::free(std::uint32_t slot) { allocator_->free(addresses_[slot]); }

void Machine::free_held(std::uint32_t slot, std::uint64_t hold) {
  const DeviceAddress address = addresses_[slot];
  if (address == 0) return;
  const StreamId stream = private_stream(hold);
  (void)device_->adopt_stream(device::to_integer(stream)).value();
  (void)allocator_->record_stream(address, stream);
  allocator_->free(address);
}

// Refused where the allocation had failed, and nothing is held.
void Machine::complete(std::uint64_t hold) { (void)device_->complete_events(private_stream(hold)); }

void Machine::empty_cache() {
  allocator_->process_events();
  allocator_->empty_cache();
}

void Machine::record_failure(const Op& op,
                             std::shared_ptr<const memory::OutOfMemoryReport> report) {
  ++result_.ooms;
  result_.fits = false;
  if (result_.first_failure) return;
  result_.first_failure = {.op = watch_.op,
                           .size_bytes = op.size_bytes,
                           .stream = program_.streams[op.stream],
                           .was_recorded = op.kind == OpKind::kFailed,
                           .reserved = watch_.reserved,
                           .report = std::move(report)};
  if (!result_.unknown_past_op) result_.unknown_past_op = watch_.op;
}

// The program's use of the block is not known; the block is taken back at once.
void Machine::record_served(DeviceAddress address) {
  ++result_.recorded_ooms_served;
  if (!result_.unknown_past_op) result_.unknown_past_op = watch_.op;
  allocator_->free(address);
}

// --- Results -------------------------------------------------------------------------------------

TimelineSample Machine::sample(std::size_t op) const {
  const memory::Statistics stats = allocator_->statistics();
  return {.op = op,
          .live = static_cast<std::uint64_t>(stats.live_bytes.current),
          .allocated = static_cast<std::uint64_t>(stats.allocated_bytes.all.current),
          .active = static_cast<std::uint64_t>(stats.active_bytes.all.current),
          .reserved = static_cast<std::uint64_t>(stats.reserved_bytes.all.current)};
}

void Machine::finish(ReplayResult& result) {
  const memory::Statistics stats = allocator_->statistics();
  result_.events = program_.events;
  result_.allocs = program_.allocs;
  result_.peak_live = static_cast<std::uint64_t>(stats.live_bytes.peak);
  result_.peak_allocated = static_cast<std::uint64_t>(stats.allocated_bytes.all.peak);
  result_.peak_active = static_cast<std::uint64_t>(stats.active_bytes.all.peak);
  result_.peak_reserved = watch_.peak_reserved;
  result_.peak_reserved_low = watch_.peak_reserved;
  result_.peak_reserved_high = watch_.peak_reserved;
  result_.peak_op = watch_.peak_op;
  result_.calls = watch_.calls;
  result_.driver_us_second_half = watch_.second_half_us;
  result_.retries = static_cast<std::uint64_t>(stats.num_alloc_retries - before_.num_alloc_retries);
  result_.statistics = stats;
  result = std::move(result_);
}

}  // namespace headroom::replay::internal
