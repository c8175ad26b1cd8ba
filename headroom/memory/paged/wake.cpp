// Blocks that sleep wake, in PagedAllocator: all of a scope, or none.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "headroom/memory/internal/shortage.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using device::DeviceResult;
using internal::PagedState;
using internal::Sleeper;

namespace {

// A device that is told of blocks takes note in the order of their streams.
DeviceResult<void> wait_for_each(device::Device& device, const std::vector<Sleeper*>& sleepers) {
  for (const Sleeper* sleeper : sleepers) {
    const auto waited = device.synchronize_stream(sleeper->block->stream);
    if (!waited && !(waited.error() == device::StatusCode::kUnknownHandle)) return waited;
  }
  return {};
}

}  // namespace

AllocationResult<SleepChange> PagedAllocator::do_wake(std::string_view scope) {
  const TagScope tag(*this);
  std::unique_lock lock(mutex_);
  PagedState& s = *state_;
  Woken woken;
  for (bool is_first = true;; is_first = false) {
    refuse_capture("wake");
    s.slabs.fold_own();
    internal::InScope is_in_scope(scope);
    std::vector<Sleeper*> sleepers = s.sleepers.pointers();
    std::erase_if(sleepers, [&](const Sleeper* sleeper) { return !is_in_scope(*sleeper); });
    woken = wake_all(sleepers);
    return_segments(lock);
    if (woken.is_done) return woken.change;
    if (woken.has_failed || !is_first || !run_free_callbacks(lock)) break;
  }
  return Unexpected(
      fail(lock,
           {.reason = woken.has_failed ? FailureReason::kDevice : FailureReason::kOutOfMemory,
            .status = woken.status,
            .asked_bytes = woken.change.block_bytes,
            .rounded_bytes = woken.change.block_bytes,
            .segment_bytes = woken.change.device_bytes}));
}

// All of them, or none: what came back for the others goes again.
PagedAllocator::Woken PagedAllocator::wake_all(const std::vector<Sleeper*>& sleepers) {
  PagedState& s = *state_;
  std::vector<Block*> blocks;
  Woken woken;
  for (const Sleeper* sleeper : sleepers) {
    blocks.push_back(sleeper->block);
    woken.change.blocks += sleeper->count();
    woken.change.block_bytes += sleeper->block_bytes();
  }
  woken.change.device_bytes = s.sleep.missing_bytes(blocks);
  s.active.prepare_for(blocks.size());
  s.slab_pages.prepare_for(blocks.size());
  const std::uint64_t peak_before = s.budget.peak_live();
  const auto undo = [&] {
    give_back_sleeping();
    forget_request(peak_before);
  };
  try {
    s.budget.begin_request(woken.change.block_bytes);
    s.budget.begin_asking();
    bring_back(blocks, woken);
    if (woken.is_done) restore(sleepers, woken);
  } catch (...) {
    undo();
    throw;
  }
  if (!woken.is_done) {
    undo();
    return woken;
  }
  awake(sleepers);
  settle_budget();
  return woken;
}

// Their pages, first from what is cached.
void PagedAllocator::bring_back(const std::vector<Block*>& blocks, Woken& woken) {
  PagedState& s = *state_;
  make_room_for(woken.change.device_bytes);
  if (s.budget.room_in_limit(0) < woken.change.device_bytes) return;
  auto brought = s.sleep.bring_back(blocks);
  if (!brought && internal::is_shortage(brought.error())) {
    release_cached(0);
    brought = s.sleep.bring_back(blocks);
  }
  woken.is_done = brought.has_value();
  if (brought) return;
  woken.status = brought.error();
  woken.has_failed = !internal::is_shortage(brought.error());
}

// Free pages go back, so that as many may be created without passing the cushion or the limit.
void PagedAllocator::make_room_for(std::uint64_t missing_bytes) {
  PagedState& s = *state_;
  const std::uint64_t room = s.budget.room_in_cushion(0);
  if (room >= missing_bytes) return;
  wait_for_pending();
  s.slabs.flush();
  s.clocks.wait();
  s.table.take_back_idle();
  s.search.begin();
  s.mover.release_free(missing_bytes - room + s.options.page_bytes - 1);
  if (s.budget.room_in_limit(0) < missing_bytes) release_cached(0);
}

// The contents that were kept.
void PagedAllocator::restore(const std::vector<Sleeper*>& sleepers, Woken& woken) {
  const auto tell = [&](auto&& call) {
    if (!state_->tracks_blocks) return;
    for (const Sleeper* sleeper : sleepers) {
      sleeper->for_each_block([&](DeviceAddress address, std::uint64_t size, std::uint64_t) {
        call(address, size, sleeper->block->stream);
      });
    }
  };
  tell([&](DeviceAddress address, std::uint64_t size, StreamId stream) {
    device_.block_allocated(address, size, stream);
  });
  auto copied = state_->tracks_blocks ? wait_for_each(device_, sleepers) : DeviceResult<void>{};
  if (copied) {
    copied = internal::copy_each(
        device_, sleepers, [&](const void* host, DeviceAddress address, std::uint64_t size) {
          return device_.copy_to_device(address, host, size, StreamId::kDefault);
        });
  }
  if (copied) return;
  tell([&](DeviceAddress address, std::uint64_t size, StreamId stream) {
    device_.block_freed(address, size, stream);
  });
  woken.is_done = false;
  woken.has_failed = true;
  woken.status = copied.error();
}

void PagedAllocator::awake(const std::vector<Sleeper*>& sleepers) noexcept {
  PagedState& s = *state_;
  internal::SlabSleep slabs(s.slabs);
  for (Sleeper* sleeper : sleepers) {
    Block& block = *sleeper->block;
    block.holder = internal::BlockHolder::kUser;
    stats_.sleeping_bytes.decrease(sleeper->block_bytes());
    if (sleeper->is_of_slabs()) {
      s.slab_pages.insert(block.address, &block);
      count_slab_page(/*is_taken=*/true);
    } else {
      s.active.insert(block.address, &block);
    }
    for_each_record(*sleeper, [&](const BlockRecord& record, const Tag& tag) {
      const TagScope scope(*this, tag);
      record_alloc(record);
    });
    if (sleeper->is_of_slabs()) slabs.put_back(sleeper->slabs);
    s.sleepers.all.erase(block.address);
  }
}

}  // namespace headroom::memory
