#include "headroom/memory/paged/paged_allocator.h"

#include <algorithm>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/internal/paged_state.h"

namespace headroom::memory {

namespace internal {

namespace {

double widest_cushion(const device::Device& device, const PagedOptions& options) {
  constexpr double kOnGpus = 0.15;
  const bool is_meta = device.id().kind == device::DeviceKind::kMeta;
  const device::DeviceKind kind = is_meta ? device.properties().stands_for : device.id().kind;
  return options.widest_cushion_fraction.value_or(kind == device::DeviceKind::kCuda ? kOnGpus : 0);
}

}  // namespace

PagedOptions fit_to_device(PagedOptions options, const device::Device& device) {
  const std::uint64_t granularity = device.properties().granularity_bytes;
  options.page_bytes = round_up(options.page_bytes, granularity);
  options.large_page_bytes = round_up(options.large_page_bytes, options.page_bytes);
  return options;
}

PagedState::PagedState(PagedAllocator& allocator, device::Device& device, PagedOptions wanted)
    : self(allocator),
      options(fit_to_device(wanted, device)),
      tracks_blocks(device.tracks_blocks()),
      store(device, blocks, *this),
      slabs(device, allocator.mutex_, *this),
      pending(device),
      apart_from_bytes(wanted.large_from_bytes),
      cushion(wanted.cushion_fraction, widest_cushion(device, wanted)),
      last_growth(device.now()) {
  store.set_page_sizes(options.page_bytes,
                       options.large_page_bytes,
                       round_up(internal::kSlabPageBytes, device.properties().granularity_bytes));
}

std::uint64_t PagedState::cushion_end() const noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(peak_live) * (1.0 + cushion.fraction())) +
         options.cushion_bytes;
}

std::uint64_t PagedState::room_in_cushion(std::uint64_t released) const noexcept {
  const std::uint64_t reserved = saturating_subtract(self.reserved_bytes(), released);
  return std::min(room_in_limit(released), saturating_subtract(cushion_end(), reserved));
}

std::uint64_t PagedState::room_in_limit(std::uint64_t released) const noexcept {
  if (!self.limit_is_set()) return UINT64_MAX;
  const std::uint64_t reserved = saturating_subtract(self.reserved_bytes(), released);
  return saturating_subtract(self.limit_value(), reserved);
}

bool PagedState::has_small_blocks() const noexcept {
  constexpr std::uint64_t kPagesOnAverage = 3;
  const auto live = static_cast<std::uint64_t>(self.stats_.live_bytes.current);
  return (live + searched_bytes) / (active.size() + 1) < kPagesOnAverage * options.page_bytes;
}

// Large blocks that come and go among small ones that stay leave these behind one by one, each
// alone in the pages at its ends. So where what is stuck in such pages shows, and until it is half
// of that, large blocks have an arena of their own.
void PagedState::note_stuck() noexcept {
  constexpr std::uint64_t kPagesOfLarge = 4;
  constexpr std::uint64_t kStuckPart = 100;
  const std::uint64_t much = peak_live / kStuckPart;
  const bool should_begin = !is_little_live() && has_small_blocks() && store.stuck_bytes() > much;
  keeps_apart = should_begin || (keeps_apart && store.stuck_bytes() > much / 2);
  const std::uint64_t from = keeps_apart ? kPagesOfLarge * options.page_bytes : UINT64_MAX;
  apart_from_bytes = std::min(options.large_from_bytes, from);
}

bool PagedState::is_little_live() const noexcept {
  constexpr std::uint64_t kPages = 128;
  return peak_live / kPages < options.page_bytes;
}

// Halves cost twice the calls, so they are for where a page's rounding shows: the block is small,
// or most are, or little is live, or much of what is free lies in whole pages that hold something
// and so cannot be used for large blocks.
bool PagedState::wants_halves(std::uint64_t stuck_bytes) const noexcept {
  constexpr std::uint64_t kPagesOfBlock = 8;
  constexpr double kStuckShare = 0.012;
  return searched_bytes / kPagesOfBlock < options.page_bytes || is_little_live() ||
         has_small_blocks() ||
         static_cast<double>(stuck_bytes) > kStuckShare * static_cast<double>(peak_live);
}

void PagedState::page_created(std::uint64_t size_bytes) noexcept {
  self.count_segment(/*is_growth=*/true, /*is_small=*/false, size_bytes);
}

void PagedState::page_released(std::uint64_t size_bytes) noexcept {
  self.count_segment(/*is_growth=*/false, /*is_small=*/false, size_bytes);
}

void PagedState::pages_arrived(const PageArena& arena,
                               DeviceAddress at,
                               std::uint64_t size) noexcept {
  self.tell_segment(Action::kSegmentMap,
                    {.address = at,
                     .size_bytes = size,
                     .stream = arena.stream(),
                     .pool = arena.pool,
                     .is_small = arena.kind == ArenaKind::kSlab});
}

void PagedState::pages_left(const PageArena& arena, DeviceAddress at, std::uint64_t size) noexcept {
  self.tell_segment(Action::kSegmentUnmap,
                    {.address = at,
                     .size_bytes = size,
                     .stream = arena.stream(),
                     .pool = arena.pool,
                     .is_small = arena.kind == ArenaKind::kSlab});
}

DeviceAddress PagedState::take_slab_page(StreamId stream) noexcept {
  try {
    return self.take_slab_page(stream);
  } catch (...) {  // Without host memory there is no page.
    return 0;
  }
}

void PagedState::give_slab_page(DeviceAddress page) noexcept { self.give_slab_page(page); }

void PagedState::fold_tally(const ThreadTally& tally) noexcept { self.note_threads(tally); }

}  // namespace internal

using internal::PagedState;

namespace {

void check_options(const device::Device& device, const PagedOptions& options) {
  if (!device.properties().has_virtual_memory) {
    throw InvalidArgument("PagedAllocator: " + to_string(device.id()) +
                          " has no virtual memory; CachingAllocator serves it");
  }
  if (options.page_bytes == 0 || options.large_page_bytes < options.page_bytes) {
    throw InvalidArgument(
        "PagedAllocator: pages must be larger than 0 bytes, and large ones no smaller than others");
  }
  if (options.large_page_bytes >= device::kAbsurdSize) {
    throw InvalidArgument("PagedAllocator: a page must be smaller than 1 EiB");
  }
  for (const double share :
       {options.cushion_fraction, options.widest_cushion_fraction.value_or(0)}) {
    if (share >= 0 && share <= 1) continue;
    throw InvalidArgument("PagedAllocator: the cushion must be a share from 0 to 1, not " +
                          std::to_string(share));
  }
}

}  // namespace

PagedAllocator::PagedAllocator(device::Device& device, PagedOptions options)
    : AllocatorCore(device) {
  check_options(device, options);
  state_ = std::make_unique<PagedState>(*this, device, options);
  const std::lock_guard lock(mutex_);
  choose_magazines();
}

PagedAllocator::~PagedAllocator() {
  if (is_forked()) {
    keep_for_ever(state_.release());
    return;
  }
  begin_destruction();
  state_->slabs.close();
  try {
    const std::lock_guard lock(mutex_);
    PagedState& s = *state_;
    // Blocks still held go back with the rest; their holders have outlived the allocator.
    std::vector<Block*> held;
    s.active.for_each([&](Block& block) {
      if (block.is_allocated) held.push_back(&block);
    });
    for (Block* block : held) {
      block->is_allocated = false;
      s.pending.add(*block, [](Block&) {});
    }
    s.pending.wait([](Block&) {});
    s.store.wait_for_streams();
    if (device_.tracks_blocks()) {
      for (Block* block : held) device_.block_freed(block->address, block->size, block->stream);
    }
  } catch (...) {  // Without host memory the blocks' users are not waited for one by one.
    (void)state_->store.wait_for_streams();
  }
  state_->store.release_all();
}

const PagedOptions& PagedAllocator::options() const noexcept { return state_->options; }

AllocatorChoice PagedAllocator::core_settings() const {
  AllocatorChoice choice{.paged = state_->options, .is_default = false};
  choice.config.backend = "paged";
  return choice;
}

// What it was made with decides where its memory lies already.
void PagedAllocator::do_configure(const AllocatorChoice& wanted) {
  if (!wanted.paged) {
    throw InvalidArgument("configure: this is the paged allocator; " + to_string(wanted) +
                          " is another");
  }
  if (internal::fit_to_device(*wanted.paged, device_) != options()) {
    throw InvalidArgument(
        "configure: a paged allocator keeps the settings it was made with; set them before the "
        "first allocation");
  }
}

void PagedAllocator::captures_changed() noexcept { state_->store.set_capturing(has_capture()); }

// --- Private pools -------------------------------------------------------------------------------

void PagedAllocator::do_begin_allocate_to_pool(PoolId id, StreamFilter filter) {
  const std::lock_guard lock(mutex_);
  state_->begin_scope(id, std::move(filter));
  choose_magazines();
}

void PagedAllocator::do_end_allocate_to_pool(PoolId id) {
  std::shared_ptr<const internal::PoolScope> ended;  // let go of after the lock
  const std::lock_guard lock(mutex_);
  ended = state_->end_scope(id);
  choose_magazines();
}

// Threads keep small blocks, unless a private pool may be meant.
void PagedAllocator::choose_magazines() noexcept {
  const PagedState& s = *state_;
  state_->slabs.enable_magazines(s.options.uses_magazines && s.scopes.empty());
}

// They take them with the lock while every block is told of, so that events have one order.
void PagedAllocator::sinks_changed() noexcept { state_->slabs.require_lock(tells_of_blocks()); }
void PagedAllocator::fold_threads() const noexcept { state_->slabs.fold_all(); }
void PagedAllocator::hold_threads() const noexcept { state_->slabs.hold(); }
void PagedAllocator::release_threads() const noexcept { state_->slabs.release(); }

internal::PoolUse* PagedAllocator::find_pool(PoolId id) const noexcept {
  return state_->find_private_pool(id);
}

void PagedAllocator::make_pool(PoolId id) { state_->make_private_pool(id); }

// --- Taking memory ahead -------------------------------------------------------------------------

AllocationResult<std::uint64_t> PagedAllocator::do_reserve(std::optional<std::uint64_t> size_bytes,
                                                           StreamId stream) {
  const TagScope tag(*this);
  std::unique_lock lock(mutex_);
  PagedState& s = *state_;
  s.slabs.fold_own();
  const auto device_failed = [&](const device::DeviceStatus& status) {
    return Unexpected(fail(lock, {.reason = FailureReason::kDevice, .status = status}));
  };
  if (auto known = check_stream(stream); !known) return device_failed(known.error());
  const std::uint64_t page = s.options.page_bytes;
  std::uint64_t wanted = 0;
  if (size_bytes) {
    wanted = std::min(checked_round_up(*size_bytes, page).value_or(device::kAbsurdSize),
                      device::kAbsurdSize);
  } else {
    const auto info = device_.memory_info();
    if (!info) return device_failed(info.error());
    wanted = round_down(std::min(info->free_bytes, s.room_in_limit(0)), page);
  }
  const auto arena = arena_for(stream, internal::ArenaKind::kNormal);
  if (!arena) return device_failed(arena.error());
  const std::uint64_t before = reserved_bytes();
  device::DeviceStatus status{};
  s.store.begin_request();
  // Without a size, as far as it goes: the device may have less than it says.
  for (std::uint64_t piece = wanted; piece >= page && reserved_bytes() - before < wanted;) {
    piece = std::min(piece, wanted - (reserved_bytes() - before));
    s.store.begin_search();
    const auto window = s.store.fresh_window(**arena, piece);
    const internal::Backed backed = window && piece <= s.room_in_limit(0)
                                        ? s.store.back(**arena, *window, {.creates = true})
                                        : internal::Backed{};
    if (backed.outcome == internal::Backing::kDone) continue;
    s.store.release_loose();
    s.store.begin_request();
    status = backed.status;
    if (size_bytes) break;
    piece = round_down(piece / 2, page);
  }
  note_growth();
  const std::uint64_t taken = reserved_bytes() - before;
  if (!size_bytes || taken >= wanted) return taken;
  return Unexpected(fail(lock,
                         {.reason = FailureReason::kOutOfMemory,
                          .status = status,
                          .asked_bytes = *size_bytes,
                          .rounded_bytes = wanted,
                          .segment_bytes = wanted - taken,
                          .stream = stream}));
}

}  // namespace headroom::memory
