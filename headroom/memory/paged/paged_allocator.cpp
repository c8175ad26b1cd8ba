#include "headroom/memory/paged/paged_allocator.h"

#include <algorithm>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/paged/internal/paged_state.h"

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

PagedState::PagedState(device::Device& device,
                       Mutex& mutex,
                       const PagedOptions& fitted,
                       PageHost& host,
                       SlabPages& slab_pages_of_host)
    : options(fitted),
      tracks_blocks(device.tracks_blocks()),
      clocks(device),
      table(blocks, clocks, host),
      arenas(device, clocks, table),
      budget(fitted, widest_cushion(device, fitted), host),
      search(clocks, table, budget),
      ends(table),
      planner(clocks, table, search, budget),
      mover(device, clocks, table, search, planner, budget),
      rests(clocks, table, search, mover),
      sleep(device, blocks, clocks, table, budget),
      slabs(device, mutex, slab_pages_of_host),
      pending(device),
      last_growth(device.now()) {
  const std::uint64_t granularity = device.properties().granularity_bytes;
  table.set_page_sizes(granularity,
                       options.page_bytes,
                       options.large_page_bytes,
                       round_up(internal::kSlabPageBytes, granularity));
}

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
  host_ = std::make_unique<Host>(*this);
  state_ = std::make_unique<PagedState>(
      device, mutex_, internal::fit_to_device(options, device), *host_, *host_);
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
    s.clocks.wait();
    if (device_.tracks_blocks()) {
      for (Block* block : held) device_.block_freed(block->address, block->size, block->stream);
    }
  } catch (...) {  // Without host memory the blocks' users are not waited for one by one.
    (void)state_->clocks.wait();
  }
  state_->clocks.release_marks();
  state_->mover.release_all();
  state_->arenas.release_all();
  state_.reset();  // before the host that it calls
}

const PagedOptions& PagedAllocator::options() const noexcept { return state_->options; }

AllocatorChoice PagedAllocator::core_settings() const {
  AllocatorChoice choice{.paged = state_->options, .is_default = false};
  choice.config.backend = "paged";
  return choice;
}

// Its first settings have decided where its memory lies.
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

void PagedAllocator::captures_changed() noexcept { state_->clocks.set_capturing(has_capture()); }

// --- What pages and slabs ask and tell -----------------------------------------------------------

internal::HostFigures PagedAllocator::Host::figures() const noexcept {
  const Statistics& stats = allocator_.stats_;
  return {.reserved_bytes = allocator_.reserved_bytes(),
          .limit_bytes = allocator_.limit_value(),
          .live_bytes = static_cast<std::uint64_t>(stats.live_bytes.current),
          .peak_live_bytes = static_cast<std::uint64_t>(stats.live_bytes.peak),
          .blocks = allocator_.state_->active.size()};
}

void PagedAllocator::Host::page_created(std::uint64_t size_bytes) noexcept {
  allocator_.add_to_statistics_segment(/*is_growth=*/true, /*is_small=*/false, size_bytes);
}

void PagedAllocator::Host::page_released(std::uint64_t size_bytes) noexcept {
  allocator_.add_to_statistics_segment(/*is_growth=*/false, /*is_small=*/false, size_bytes);
}

void PagedAllocator::Host::pages_arrived(const PageArena& arena,
                                         DeviceAddress at,
                                         std::uint64_t size) noexcept {
  allocator_.emit_segment(Action::kSegmentMap, segment_at(arena, at, size));
}

void PagedAllocator::Host::pages_left(const PageArena& arena,
                                      DeviceAddress at,
                                      std::uint64_t size) noexcept {
  allocator_.emit_segment(Action::kSegmentUnmap, segment_at(arena, at, size));
}

DeviceAddress PagedAllocator::Host::take_slab_page(StreamId stream) noexcept {
  try {
    return allocator_.take_slab_page(stream);
  } catch (...) {  // Without host memory there is no page.
    return 0;
  }
}

void PagedAllocator::Host::give_slab_page(DeviceAddress page) noexcept {
  allocator_.give_slab_page(page);
}

void PagedAllocator::Host::fold_tally(const internal::ThreadTally& tally) noexcept {
  allocator_.record_threads(tally);
}

// --- Private pools -------------------------------------------------------------------------------

void PagedAllocator::do_begin_allocate_to_pool(PoolId id, StreamFilter filter) {
  const std::lock_guard lock(mutex_);
  state_->pools.begin_scope(id, std::move(filter));
  choose_magazines();
}

void PagedAllocator::do_end_allocate_to_pool(PoolId id) {
  std::shared_ptr<const internal::PoolScope> ended;  // let go of after the lock
  const std::lock_guard lock(mutex_);
  ended = state_->pools.end_scope(id);
  choose_magazines();
}

// Threads keep small blocks, unless a private pool may be meant.
void PagedAllocator::choose_magazines() noexcept {
  const PagedState& s = *state_;
  state_->slabs.enable_magazines(s.options.uses_magazines && s.pools.scopes.empty());
}

// They take them with the lock while every block is told of, so that events have one order.
void PagedAllocator::sinks_changed() noexcept { state_->slabs.require_lock(tells_of_blocks()); }
void PagedAllocator::fold_threads() const noexcept { state_->slabs.fold_all(); }
void PagedAllocator::pause_threads() const noexcept { state_->slabs.pause_threads(); }
void PagedAllocator::resume_threads() const noexcept { state_->slabs.resume_threads(); }

internal::PoolUse* PagedAllocator::find_pool(PoolId id) const noexcept {
  return state_->pools.find_private_pool(id);
}

void PagedAllocator::make_pool(PoolId id) { state_->pools.make_private_pool(id); }

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
    wanted = round_down(std::min(info->free_bytes, s.budget.room_in_limit(0)), page);
  }
  const auto arena = arena_for(stream, internal::ArenaKind::kNormal);
  if (!arena) return device_failed(arena.error());
  const std::uint64_t before = reserved_bytes();
  device::DeviceStatus status{};
  s.budget.begin_asking();
  // Without a size, as far as it goes: the device may have less than it says.
  for (std::uint64_t piece = wanted; piece >= page && reserved_bytes() - before < wanted;) {
    piece = std::min(piece, wanted - (reserved_bytes() - before));
    s.search.begin();
    const auto window = s.search.fresh_window(**arena, piece);
    const internal::Backed backed = window && piece <= s.budget.room_in_limit(0)
                                        ? s.mover.back(**arena, *window, {.creates = true})
                                        : internal::Backed{};
    if (backed.outcome == internal::Backing::kDone) continue;
    s.mover.release_loose();
    s.budget.begin_asking();
    status = backed.status;
    if (size_bytes) break;
    piece = round_down(piece / 2, page);
  }
  settle_budget();
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
