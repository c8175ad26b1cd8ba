// Blocks that fall asleep, in PagedAllocator: who does, what is counted, what becomes of the
// contents. Where their pages are is PageSleep's.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/memory/internal/block_info.h"
#include "headroom/memory/paged/internal/paged_state.h"

namespace headroom::memory {

using device::DeviceResult;
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

}  // namespace

// --- To sleep ------------------------------------------------------------------------------------

SleepChange PagedAllocator::do_sleep(std::string_view scope, SleepContents contents) {
  const std::lock_guard lock(mutex_);
  PagedState& s = *state_;
  refuse_capture("sleep");
  s.slabs.fold_own();
  s.slabs.flush();
  internal::Sleepers falling;
  add_blocks_in(scope, falling);
  add_slabs_in(scope, falling);
  if (falling.all.empty()) return {};
  wait_for_users(falling);
  keep_contents(falling, contents);
  const std::uint64_t before = reserved_bytes();
  SleepChange change = fall_asleep(falling);
  give_back_sleeping();
  settle_budget();
  change.device_bytes = before - reserved_bytes();
  return change;
}

// The large blocks that are held and were allocated in the scope.
void PagedAllocator::add_blocks_in(std::string_view scope, internal::Sleepers& falling) const {
  internal::InScope is_in_scope(scope);
  std::uint64_t private_blocks = 0;
  std::uint64_t private_bytes = 0;
  state_->active.for_each([&](Block& block) {
    if (!block.is_allocated || !is_in_scope(block.context)) return;
    if (block.arena->is_private()) {
      ++private_blocks;
      private_bytes += block.size;
      return;
    }
    falling.all[block.address] = {.block = &block, .tag = tag_of(block.address)};
  });
  if (private_blocks == 0) return;
  throw InvalidArgument("sleep: of the blocks" +
                        (scope.empty() ? "" : " of '" + std::string(scope) + "'") + ", " +
                        std::to_string(private_blocks) + " (" + format_bytes(private_bytes) +
                        ") are in a private pool, where a graph may use them; name a scope "
                        "without them");
}

// The pages of small blocks in which all that are held were.
void PagedAllocator::add_slabs_in(std::string_view scope, internal::Sleepers& falling) const {
  PagedState& s = *state_;
  internal::InScope is_in_scope(scope);
  const internal::SlabSleep slabs(s.slabs);
  s.slab_pages.for_each([&](Block& page) {
    auto found = slabs.look_at(
        page.address, [&](const internal::SlabBlock& block) { return is_in_scope(block.context); });
    if (!found) return;
    for (internal::SleepingSlot& slot : found->held) slot.tag = tag_of(slot.block.address);
    falling.all[page.address] = {.block = &page, .slabs = *std::move(found)};
  });
}

// Until no stream uses the blocks.
void PagedAllocator::wait_for_users(const internal::Sleepers& falling) {
  std::vector<StreamId> streams;
  const auto add = [&](StreamId stream) {
    if (std::ranges::count(streams, stream) == 0) streams.push_back(stream);
  };
  for (const auto& [address, sleeper] : falling.all) {
    add(sleeper.block->stream);
    for (const StreamId stream : sleeper.block->stream_uses.all()) add(stream);
  }
  for (const StreamId stream : streams) {
    if (auto waited = wait_for_stream(device_, stream); !waited) {
      throw Error(to_string(waited.error()));
    }
  }
}

// The last that can fail; nothing has changed until then.
void PagedAllocator::keep_contents(internal::Sleepers& falling, SleepContents contents) {
  if (contents == SleepContents::kDiscarded) return;
  for (auto& [address, sleeper] : falling.all) {
    const Block& block = *sleeper.block;
    const std::uint64_t size = sleeper.is_of_slabs() ? block.size : block.requested;
    sleeper.contents = internal::HostCopy(device_, size);
  }
  std::vector<internal::HostCopy>& left_over = state_->sleepers.left_over;
  left_over.reserve(left_over.size() + falling.all.size());
  const auto copied = internal::copy_each(
      device_, falling.pointers(), [&](void* host, DeviceAddress address, std::uint64_t size) {
        return device_.copy_to_host(host, address, size, StreamId::kDefault);
      });
  if (copied) {
    left_over.clear();
    return;
  }
  for (auto& [address, sleeper] : falling.all) left_over.push_back(std::move(sleeper.contents));
  throw Error(to_string(copied.error()));
}

SleepChange PagedAllocator::fall_asleep(internal::Sleepers& falling) noexcept {
  PagedState& s = *state_;
  SleepChange change;
  internal::SlabSleep slabs(s.slabs);
  // A thread may have freed a small block meanwhile, without the lock.
  for (auto it = falling.all.begin(); it != falling.all.end();) {
    Sleeper& sleeper = it->second;
    const bool is_awake = sleeper.is_of_slabs() && !slabs.take_out(sleeper.slabs);
    it = is_awake ? falling.all.erase(it) : std::next(it);
  }
  for (auto& [address, sleeper] : falling.all) {
    Block& block = *sleeper.block;
    change.blocks += sleeper.count();
    change.block_bytes += sleeper.block_bytes();
    for_each_record(sleeper, [&](const BlockRecord& record, const Tag& /*tag*/) {
      record_free_requested(record);
      record_free_completed(record);
      if (s.tracks_blocks) device_.block_freed(record.address, record.size_bytes, record.stream);
    });
    if (sleeper.is_of_slabs()) {
      s.slab_pages.erase(address);
      count_slab_page(/*is_taken=*/false);
    } else {
      s.active.erase(address);
    }
    block.holder = internal::BlockHolder::kSleeper;
  }
  stats_.sleeping_bytes.increase(change.block_bytes);
  s.sleepers.all.merge(falling.all);
  return change;
}

void PagedAllocator::refuse_capture(const char* call) const {
  if (!has_capture()) return;
  throw InvalidArgument(std::string(call) + ": a graph capture is under way; end it first");
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

// A page counts as the small pool's while slabs are in it.
void PagedAllocator::count_slab_page(bool is_taken) noexcept {
  constexpr auto kBytes = static_cast<std::int64_t>(internal::kSlabPageBytes);
  Stat& small = stats_.reserved_bytes.small_pool;
  Stat& large = stats_.reserved_bytes.large_pool;
  (is_taken ? large : small).current -= kBytes;
  (is_taken ? small : large).move(kBytes);
}

// --- Freed meanwhile -----------------------------------------------------------------------------

// What a free of an address that no block awake has comes to. Requires mutex_.
DeviceResult<void> PagedAllocator::free_sleeper(DeviceAddress address) {
  PagedState& s = *state_;
  const DeviceAddress start =
      s.slabs.owns(address) ? round_down(address, internal::kSlabPageBytes) : address;
  const auto found = s.sleepers.all.find(start);
  if (found == s.sleepers.all.end()) return internal::not_held(device_, address);
  Sleeper& sleeper = found->second;
  std::vector<internal::SleepingSlot>& held = sleeper.slabs.held;
  const auto slot = std::ranges::find(
      held, address, [](const internal::SleepingSlot& of) { return of.block.address; });
  if (sleeper.is_of_slabs() && slot == held.end()) return internal::not_held(device_, address);
  // A capture may not survive that host memory goes back.
  s.sleepers.left_over.reserve(s.sleepers.left_over.size() + 1);
  const std::uint64_t size = sleeper.is_of_slabs() ? slot->block.size_bytes : sleeper.block->size;
  if (sleeper.count() == 1) s.sleep.leave(*sleeper.block);
  stats_.sleeping_bytes.decrease(size);
  if (sleeper.is_of_slabs()) {
    internal::SlabSleep::free(sleeper.slabs, static_cast<std::size_t>(slot - held.begin()));
    if (!held.empty()) return {};
  }
  if (has_capture()) s.sleepers.left_over.push_back(std::move(sleeper.contents));
  s.sleepers.all.erase(found);
  return {};
}

}  // namespace headroom::memory
