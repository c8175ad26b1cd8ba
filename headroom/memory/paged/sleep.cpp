// Blocks that sleep, in PagedAllocator: who sleeps, what is counted, what becomes of the contents.
// Where their pages are is PageSleep's.
#include <algorithm>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/memory/internal/block_info.h"
#include "headroom/memory/internal/shortage.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using device::DeviceResult;
using device::DeviceStatus;
using device::StatusCode;
using internal::PagedState;
using internal::Sleeper;

namespace {

// Until all that is queued on the stream has run; of one that was released, too.
DeviceResult<void> wait_for_stream(device::Device& device, StreamId stream) {
  const auto event = device.record_event(stream);
  if (!event) {
    if (event.error() == StatusCode::kUnknownHandle) return {};
    return Unexpected(event.error());
  }
  const auto waited = device.synchronize_event(*event);
  (void)device.release_event(*event);
  return waited;
}

// Everything that reads and writes the blocks has been waited for, so the copies may run on any
// stream. They are over when this returns, unless the device failed.
template <class Copy>
DeviceResult<void> copy_each(device::Device& device,
                             const std::vector<Sleeper*>& sleepers,
                             Copy&& copy) {
  const auto is_kept = [](const Sleeper* sleeper) { return sleeper->contents.data() != nullptr; };
  if (std::ranges::none_of(sleepers, is_kept)) return {};
  DeviceResult<void> done;
  for (const Sleeper* sleeper : sleepers) {
    if (done && is_kept(sleeper)) done = copy(*sleeper);
  }
  const auto waited = device.synchronize_stream(StreamId::kDefault);
  return done ? waited : done;
}

void refuse_capture(bool has_capture, const char* call) {
  if (!has_capture) return;
  throw InvalidArgument(std::string(call) + ": a graph capture is under way; end it first");
}

std::vector<Sleeper*> pointers_to(internal::SleeperMap& sleepers) {
  std::vector<Sleeper*> out;
  out.reserve(sleepers.size());
  for (auto& [address, sleeper] : sleepers) out.push_back(&sleeper);
  return out;
}

}  // namespace

// --- To sleep ------------------------------------------------------------------------------------

SleepChange PagedAllocator::do_sleep(std::string_view scope, SleepContents contents) {
  const std::lock_guard lock(mutex_);
  PagedState& s = *state_;
  refuse_capture(has_capture(), "sleep");
  s.slabs.fold_own();
  const std::vector<Block*> blocks = awake_in(scope);
  if (blocks.empty()) return {};
  wait_for_users(blocks);
  internal::Sleepers falling = prepare_sleepers(blocks, contents);
  SleepChange change{.blocks = blocks.size()};
  for (const Block* block : blocks) change.block_bytes += block->size;
  const std::uint64_t before = reserved_bytes();
  fall_asleep(falling);
  give_back_sleeping();
  settle_budget();
  change.device_bytes = before - reserved_bytes();
  return change;
}

// Everything that can fail, before anything has changed.
internal::Sleepers PagedAllocator::prepare_sleepers(const std::vector<Block*>& blocks,
                                                    SleepContents contents) {
  internal::Sleepers falling;
  for (Block* block : blocks) {
    Sleeper& sleeper = falling.all[block->address];
    sleeper = {.block = block, .tag = tag_of(block->address)};
    if (contents == SleepContents::kKeptOnHost) {
      sleeper.contents = internal::HostCopy(device_, block->requested);
    }
  }
  std::vector<internal::HostCopy>& left_over = state_->sleepers.left_over;
  left_over.reserve(left_over.size() + blocks.size());
  const auto copied = copy_each(device_, pointers_to(falling.all), [&](const Sleeper& sleeper) {
    const Block& block = *sleeper.block;
    return device_.copy_to_host(
        sleeper.contents.data(), block.address, block.requested, StreamId::kDefault);
  });
  if (copied) {
    left_over.clear();
    return falling;
  }
  for (auto& [address, sleeper] : falling.all) left_over.push_back(std::move(sleeper.contents));
  throw Error(to_string(copied.error()));
}

// The blocks that are held and were allocated in the scope, by address.
std::vector<PagedAllocator::Block*> PagedAllocator::awake_in(std::string_view scope) const {
  internal::InScope is_in_scope(scope);
  std::vector<Block*> blocks;
  std::uint64_t private_blocks = 0;
  std::uint64_t private_bytes = 0;
  state_->active.for_each([&](Block& block) {
    if (!block.is_allocated || !is_in_scope(block.context)) return;
    if (block.arena->is_private()) {
      ++private_blocks;
      private_bytes += block.size;
    }
    blocks.push_back(&block);
  });
  if (private_blocks > 0) {
    throw InvalidArgument("sleep: of the blocks" +
                          (scope.empty() ? "" : " of '" + std::string(scope) + "'") + ", " +
                          std::to_string(private_blocks) + " (" + format_bytes(private_bytes) +
                          ") are in a private pool, where a graph may use them; name a scope "
                          "without them");
  }
  std::ranges::sort(blocks, {}, &Block::address);
  return blocks;
}

// Until no stream uses the blocks, or anything that was freed.
void PagedAllocator::wait_for_users(const std::vector<Block*>& blocks) {
  std::vector<StreamId> streams;
  const auto add = [&](StreamId stream) {
    if (std::ranges::count(streams, stream) == 0) streams.push_back(stream);
  };
  for (const Block* block : blocks) {
    add(block->stream);
    for (const StreamId stream : block->stream_uses.all()) add(stream);
  }
  for (const StreamId stream : streams) {
    if (auto waited = wait_for_stream(device_, stream); !waited) {
      throw Error(to_string(waited.error()));
    }
  }
}

void PagedAllocator::fall_asleep(internal::Sleepers& sleepers) noexcept {
  PagedState& s = *state_;
  for (auto& [address, sleeper] : sleepers.all) {
    Block& block = *sleeper.block;
    record_free_requested(note_of(block));
    record_free_completed(note_of(block));
    if (s.tracks_blocks) device_.block_freed(address, block.size, block.stream);
    stats_.sleeping_bytes.increase(block.size);
    s.active.erase(address);
    block.holder = internal::BlockHolder::kSleeper;
  }
  s.sleepers.all.merge(sleepers.all);
}

// The pages that only sleeping blocks need. What was freed may have used them too, at places that
// are stale.
void PagedAllocator::give_back_sleeping() noexcept {
  PagedState& s = *state_;
  if (has_capture() || s.sleepers.all.empty()) return;
  try {
    wait_for_pending();
    if (!s.clocks.wait()) return;
  } catch (...) {  // Without host memory they stay.
    return;
  }
  for (auto& [address, sleeper] : s.sleepers.all) s.sleep.give_back(*sleeper.block);
}

// --- Awake again ---------------------------------------------------------------------------------

AllocationResult<SleepChange> PagedAllocator::do_wake(std::string_view scope) {
  const TagScope tag(*this);
  std::unique_lock lock(mutex_);
  PagedState& s = *state_;
  Woken woken;
  for (bool is_first = true;; is_first = false) {
    refuse_capture(has_capture(), "wake");
    s.slabs.fold_own();
    internal::InScope is_in_scope(scope);
    std::vector<Sleeper*> sleepers = pointers_to(s.sleepers.all);
    std::erase_if(sleepers,
                  [&](const Sleeper* sleeper) { return !is_in_scope(sleeper->block->context); });
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
  Woken woken{.change = {.blocks = sleepers.size()}};
  for (const Sleeper* sleeper : sleepers) {
    blocks.push_back(sleeper->block);
    woken.change.block_bytes += sleeper->block->size;
  }
  woken.change.device_bytes = s.sleep.missing_bytes(blocks);
  s.active.prepare_for(blocks.size());
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
    for (const Sleeper* sleeper : sleepers) call(*sleeper->block);
  };
  tell([&](const Block& b) { device_.block_allocated(b.address, b.size, b.stream); });
  const auto copied = copy_each(device_, sleepers, [&](const Sleeper& sleeper) {
    const Block& block = *sleeper.block;
    return device_.copy_to_device(
        block.address, sleeper.contents.data(), block.requested, StreamId::kDefault);
  });
  if (copied) return;
  tell([&](const Block& b) { device_.block_freed(b.address, b.size, b.stream); });
  woken.is_done = false;
  woken.has_failed = true;
  woken.status = copied.error();
}

void PagedAllocator::awake(const std::vector<Sleeper*>& sleepers) noexcept {
  PagedState& s = *state_;
  for (Sleeper* sleeper : sleepers) {
    Block& block = *sleeper->block;
    block.holder = internal::BlockHolder::kUser;
    s.active.insert(block.address, &block);
    stats_.sleeping_bytes.decrease(block.size);
    const TagScope tag(*this, std::move(sleeper->tag));
    record_alloc(note_of(block));
    s.sleepers.all.erase(block.address);
  }
}

// --- Freed meanwhile -----------------------------------------------------------------------------

// What a free of an address that no block awake has comes to. Requires mutex_.
DeviceResult<void> PagedAllocator::free_sleeper(DeviceAddress address) {
  PagedState& s = *state_;
  const auto found = s.sleepers.all.find(address);
  if (found == s.sleepers.all.end()) return internal::not_held(device_, address);
  // A capture may not survive that host memory goes back.
  s.sleepers.left_over.reserve(s.sleepers.left_over.size() + 1);
  const std::uint64_t size = found->second.block->size;
  s.sleep.leave(*found->second.block);
  stats_.sleeping_bytes.decrease(size);
  if (has_capture()) s.sleepers.left_over.push_back(std::move(found->second.contents));
  s.sleepers.all.erase(found);
  return {};
}

}  // namespace headroom::memory
