#include "headroom/replay/internal/machine.h"

#include <algorithm>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/replay/internal/start.h"

namespace headroom::replay::internal {

using memory::Action;

namespace {

// Every hold has a stream of its own, so that they complete one by one; those that complete
// together do so in the order of their numbers.
constexpr std::uint64_t kFirstPrivateStream = std::uint64_t{1} << 63U;

// Where no driver puts anything.
constexpr DeviceAddress kOutside = DeviceAddress{1} << 60U;

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
  const std::uint64_t size = event.size_bytes;
  const std::uint64_t page = event.is_small ? memory::kSmallSegmentBytes : large_page_;
  const std::uint64_t handles = size / page;
  double ns = 0;
  switch (event.action) {
    case Action::kSegmentAlloc:
      ns = costs_.allocate_segment.price_ns(size);
      break;
    case Action::kSegmentFree:
      ns = costs_.free_segment.price_ns(size);
      break;
    case Action::kSegmentMap:
      calls.handles_mapped += handles;
      ns = static_cast<double>(handles) *
           (costs_.create_pages.price_ns(page) + costs_.map_pages.price_ns(page));
      break;
    default:
      calls.handles_unmapped += handles;
      ns = static_cast<double>(handles) *
           (costs_.release_pages.price_ns(page) + costs_.unmap_pages.price_ns(page));
  }
  if (event.action == Action::kSegmentAlloc || event.action == Action::kSegmentMap) {
    ++calls.device_allocs;
    reserved += size;
    if (reserved > peak_reserved) {
      peak_reserved = reserved;
      peak_op = op;
    }
  } else {
    ++calls.device_frees;
    reserved -= size;
  }
  calls.driver_us += ns / 1e3;
  if (op >= half_op_) second_half_us += ns / 1e3;
}

Machine::Machine(const Program& program, const ReplayOptions& options)
    : program_(program),
      options_(options),
      watch_(options.config, program.ops.size() / 2),
      addresses_(program.slot_count, 0) {
  build();
  if (!program.start.segments.empty() && !restore()) {
    // A state that contradicts itself: go on without it, as with a gap in the recording.
    result_.is_start_restored = false;
    build();
  }
  before_ = allocator_->statistics();
  take_outside();
  watch_.reserved = static_cast<std::uint64_t>(before_.reserved_bytes.all.current);
  watch_.peak_reserved = watch_.reserved;
  creates_before_ = device_->calls(device::Call::kCreatePages);
  allocator_->reset_peak_statistics();
  allocator_->reset_accumulated_statistics();
  allocator_->set_segment_sink(&watch_);
  allocator_->set_sink(options.sink);
}

// What the context, other libraries and other processes hold, as far as there is room beside us.
void Machine::take_outside() {
  const std::uint64_t room = device_->memory_info().value().free_bytes;
  const std::uint64_t size = std::min(options_.outside_bytes, room);
  if (size == 0) return;
  device_->place_next_segment(kOutside);
  (void)device_->allocate_segment(size);
  device_->forget_places();
}

Machine::~Machine() {
  allocator_->set_sink(nullptr);
  allocator_->set_segment_sink(nullptr);
}

void Machine::build() {
  allocator_.reset();
  // What was there before the first event is there whatever card is asked about.
  const std::uint64_t card = std::max(options_.card_bytes, program_.start.reserved_bytes);
  device_ = device::MetaDevice::create({.capacity_bytes = std::max<std::uint64_t>(card, 2_MiB),
                                        .events = device::EventCompletion::kByHand,
                                        .addresses = options_.order});
  allocator_ = std::make_unique<memory::CachingAllocator>(
      *device_, memory::CachingOptions{.config = options_.config, .version = options_.version});
  if (options_.limit_bytes) allocator_->set_limit(options_.limit_bytes);
  for (const StreamId stream : program_.streams) {
    (void)device_->adopt_stream(device::to_integer(stream)).value();
  }
}

bool Machine::restore() {
  const auto layout_or = lay_out_start(program_, *device_);
  if (!layout_or) return false;
  const StartLayout& layout = *layout_or;
  if (!allocator_->restore(layout.segments, layout.reservations)) return false;
  for (const StartSlot& start : program_.start_slots) {
    if (!layout.holds(start.address)) continue;  // a block that lies in no segment
    addresses_[start.slot] = start.address;
    if (start.is_pending) free_held(start.slot, start.hold);
  }
  return true;
}

// --- Ops -----------------------------------------------------------------------------------------

bool Machine::run(std::size_t first, std::size_t last) {
  const Op* const ops = program_.ops.data();
  const StreamId* const streams = program_.streams.data();
  memory::CachingAllocator& allocator = *allocator_;
  for (std::size_t i = first; i < last; ++i) {
    const Op& op = ops[i];
    watch_.op = i;
    switch (op.kind) {
      case OpKind::kAllocate: {
        const auto block = op.pool == 0 ? allocator.try_allocate(op.size_bytes, streams[op.stream])
                                        : allocate_in_pool(op);
        if (block) [[likely]] {
          addresses_[op.slot] = *block;
        } else {
          addresses_[op.slot] = 0;
          note_failure(op);
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
          note_served(address);
        } else {
          note_failure(op);
          if (options_.stop_at_failure) return false;
        }
        break;
      case OpKind::kEmptyCache:
        empty_cache();
        break;
    }
  }
  return true;
}

// For this one alone: while a pool is open, frees that wait for another stream wait for its end
// too.
memory::AllocationResult<DeviceAddress> Machine::allocate_in_pool(const Op& op) {
  const memory::PoolId pool = program_.pools[op.pool];
  allocator_->begin_allocate_to_pool(pool, [](StreamId) { return true; });
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

void Machine::note_failure(const Op& op) {
  ++result_.ooms;
  result_.fits = false;
  if (result_.first_failure) return;
  result_.first_failure = {.op = watch_.op,
                           .size_bytes = op.size_bytes,
                           .stream = program_.streams[op.stream],
                           .was_recorded = op.kind == OpKind::kFailed,
                           .reserved = watch_.reserved};
  if (!result_.unknown_past_op) result_.unknown_past_op = watch_.op;
}

// What the program would have done with the block is not known; it is taken back at once.
void Machine::note_served(DeviceAddress address) {
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
  result_.peak_live = program_.peak_live;
  result_.peak_allocated = static_cast<std::uint64_t>(stats.allocated_bytes.all.peak);
  result_.peak_active = static_cast<std::uint64_t>(stats.active_bytes.all.peak);
  result_.peak_reserved = watch_.peak_reserved;
  result_.peak_reserved_low = watch_.peak_reserved;
  result_.peak_reserved_high = watch_.peak_reserved;
  result_.peak_op = watch_.peak_op;
  result_.calls = watch_.calls;
  result_.calls.handles_created = device_->calls(device::Call::kCreatePages) - creates_before_;
  result_.driver_us_second_half = watch_.second_half_us;
  result_.retries = static_cast<std::uint64_t>(stats.num_alloc_retries - before_.num_alloc_retries);
  result_.statistics = stats;
  result = std::move(result_);
}

}  // namespace headroom::replay::internal
