#include <algorithm>
#include <string>
#include <utility>

#include "headroom/base/error.h"

#include "bindings/pytorch/bridge/convert.h"
#include "bindings/pytorch/bridge/named_stacks.h"
#include "bindings/pytorch/bridge/process.h"
#include "bindings/pytorch/bridge/streams.h"

namespace headroom::bridge {
namespace {

using device::StatusCode;

Failure& failure_of_thread() {
  thread_local Failure failure;  // NOLINT(readability-identifier-naming)
  return failure;
}

}  // namespace

void remember_failure(const memory::AllocationFailure& failure) noexcept {
  try {
    failure_of_thread() = to_bridge(failure);
  } catch (...) {  // No memory for the sentence.
    failure_of_thread() = {};
  }
}

const Failure& last_failure() noexcept { return failure_of_thread(); }

DeviceMemory::DeviceMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceMemory::~DeviceMemory() = default;

// --- Blocks --------------------------------------------------------------------------------------

void* DeviceMemory::allocate(std::size_t size_bytes,
                             NativeStream stream,
                             bool is_lasting) noexcept {
  Impl& impl = *impl_;
  impl.captures.look();
  const auto id = StreamCache::find(impl.device, stream, is_lasting);
  if (!id) [[unlikely]] {
    remember_failure({.reason = memory::FailureReason::kDevice, .status = id.error()});
    return nullptr;
  }
  const RecordedStack stack(wants_stacks(impl.index));
  const auto block = impl.allocator.try_allocate(size_bytes, *id);
  if (!block) [[unlikely]] {
    remember_failure(block.error());
    return nullptr;
  }
  return to_pointer(*block);
}

bool DeviceMemory::free(void* block) noexcept {
  Impl& impl = *impl_;
  impl.captures.look();
  const auto free_it = [&] {
    const auto freed = impl.allocator.try_free(to_address(block));
    return freed || freed.error() == StatusCode::kForked;
  };
  if (!impl.history.wants_free_contexts()) [[likely]] {
    return free_it();
  }
  try {
    const FreeContext context(impl.history.make_context());
    return free_it();
  } catch (...) {  // Without a context, then.
    return free_it();
  }
}

void DeviceMemory::record_stream(void* block, NativeStream stream, bool is_lasting) {
  Impl& impl = *impl_;
  const auto id = StreamCache::find(impl.device, stream, is_lasting);
  if (!id) throw Error("record_stream: " + to_string(id.error()));
  const auto done = impl.allocator.record_stream(to_address(block), *id);
  // Memory that is not ours is left alone, as PyTorch's own allocator does.
  if (done || done.error() == StatusCode::kUnknownHandle || done.error() == StatusCode::kForked ||
      !impl.allocator.find_block(to_address(block))) {
    return;
  }
  throw Error("record_stream: " + to_string(done.error()));
}

std::uint64_t DeviceMemory::block_bytes(void* block) const {
  const auto found = impl_->allocator.find_block(to_address(block));
  return found ? found->size_bytes : 0;
}

void* DeviceMemory::segment_of(void* address, std::size_t* size_bytes) const {
  const auto place = impl_->allocator.locate(to_address(address));
  if (!place) return nullptr;
  if (size_bytes != nullptr) *size_bytes = place->segment_bytes;
  return to_pointer(place->segment_address);
}

// --- Statistics and limits -----------------------------------------------------------------------

DeviceStats DeviceMemory::stats() const { return to_bridge(impl_->allocator.statistics()); }
void DeviceMemory::reset_accumulated_stats() noexcept {
  impl_->allocator.reset_accumulated_statistics();
}
void DeviceMemory::reset_peak_stats() noexcept { impl_->allocator.reset_peak_statistics(); }

std::uint64_t DeviceMemory::allocated_bytes() const {
  return static_cast<std::uint64_t>(impl_->allocator.statistics().allocated_bytes.all.current);
}
std::uint64_t DeviceMemory::reserved_bytes() const {
  return static_cast<std::uint64_t>(impl_->allocator.statistics().reserved_bytes.all.current);
}

void DeviceMemory::set_memory_fraction(double fraction) {
  impl_->allocator.set_memory_fraction(fraction);
}
double DeviceMemory::memory_fraction() const noexcept { return impl_->allocator.memory_fraction(); }
void DeviceMemory::set_limit(std::optional<std::uint64_t> limit_bytes) noexcept {
  impl_->allocator.set_limit(limit_bytes);
}

std::uint64_t DeviceMemory::empty_cache(PoolKey pool) noexcept {
  impl_->captures.look();
  return impl_->allocator.empty_cache(to_memory(pool));
}

std::uint64_t DeviceMemory::trim(std::uint64_t keep_bytes) noexcept {
  impl_->captures.look();
  return impl_->allocator.trim(keep_bytes);
}

std::uint64_t DeviceMemory::largest_request_bytes() const {
  const auto info = impl_->device.memory_info();
  std::uint64_t fresh = info ? info->free_bytes : 0;
  if (const auto limit = impl_->allocator.limit()) {
    const std::uint64_t reserved = reserved_bytes();
    fresh = std::min(fresh, *limit > reserved ? *limit - reserved : 0);
  }
  return std::max(fresh, impl_->allocator.largest_cached_bytes());
}

// --- Snapshots -----------------------------------------------------------------------------------

std::vector<Segment> DeviceMemory::segments(PoolKey pool) const {
  const std::vector<memory::SegmentInfo> all =
      pool == PoolKey{} ? impl_->allocator.segments() : impl_->allocator.segments(to_memory(pool));
  std::vector<Segment> segments;
  segments.reserve(all.size());
  for (const memory::SegmentInfo& segment : all) {
    segments.push_back(to_bridge(segment, impl_->device));
  }
  std::ranges::sort(segments, {}, &Segment::address);
  return segments;
}

std::vector<TraceEntry> DeviceMemory::trace() const { return impl_->history.trace(); }

void DeviceMemory::record_snapshot() {
  const auto active = impl_->allocator.statistics().active_bytes.all.current;
  impl_->history.record_snapshot(static_cast<std::uint64_t>(active));
}

// --- Pools ---------------------------------------------------------------------------------------

void DeviceMemory::begin_allocate_to_pool(PoolKey pool,
                                          std::function<bool(NativeStream)> filter,
                                          NativeStream capturing) {
  Impl& impl = *impl_;
  const auto stream = StreamCache::find(impl.device, capturing, false);
  if (!stream) throw Error("begin_allocate_to_pool: " + to_string(stream.error()));
  device::Device& device = impl.device;
  impl.allocator.begin_allocate_to_pool(
      to_memory(pool), [&device, filter = std::move(filter)](device::StreamId asked) {
        return !filter || filter(native_of(device, asked));
      });
  impl.captures.opened(to_memory(pool), *stream);
}

void DeviceMemory::end_allocate_to_pool(PoolKey pool) {
  impl_->captures.closed(to_memory(pool));
  impl_->allocator.end_allocate_to_pool(to_memory(pool));
}

void DeviceMemory::retain_pool(PoolKey pool) { impl_->allocator.retain_pool(to_memory(pool)); }
void DeviceMemory::release_pool(PoolKey pool) { impl_->allocator.release_pool(to_memory(pool)); }
int DeviceMemory::pool_use_count(PoolKey pool) const noexcept {
  return impl_->allocator.pool_use_count(to_memory(pool));
}
void DeviceMemory::set_pool_no_split(PoolKey pool) {
  impl_->allocator.set_pool_no_split(to_memory(pool));
}
void DeviceMemory::set_pool_use_on_failure(PoolKey pool, bool serves_failures) {
  impl_->allocator.set_pool_use_on_failure(to_memory(pool), serves_failures);
}

void DeviceMemory::set_pool_source(PoolKey pool, SegmentSource source) {
  device::Device& device = impl_->device;
  const auto shared = std::make_shared<const SegmentSource>(std::move(source));
  impl_->allocator.set_pool_source(
      to_memory(pool),
      {.allocate =
           [shared, &device](std::uint64_t size_bytes, device::StreamId stream) {
             return to_address(shared->allocate(size_bytes, native_of(device, stream)));
           },
       .free = [shared](device::DeviceAddress segment,
                        std::uint64_t) { shared->free(to_pointer(segment)); }});
}

bool DeviceMemory::holds_exactly(PoolKey pool, const std::unordered_set<void*>& blocks) const {
  std::size_t count = 0;
  for (const memory::SegmentInfo& segment : impl_->allocator.segments(to_memory(pool))) {
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.state != memory::BlockState::kAllocated) continue;
      if (blocks.count(to_pointer(block.address)) == 0) return false;
      ++count;
    }
  }
  return count == blocks.size();
}

PoolState DeviceMemory::pool_state(PoolKey pool) const {
  PoolState state{.pool = pool};
  for (const memory::SegmentInfo& segment : impl_->allocator.segments(to_memory(pool))) {
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.state != memory::BlockState::kAllocated) continue;
      state.blocks.push_back({.address = block.address,
                              .size_bytes = block.size_bytes,
                              .requested_bytes = block.requested_bytes,
                              .is_allocated = true,
                              .is_active = true});
    }
  }
  return state;
}

PoolChange DeviceMemory::restore_pool(const PoolState& state) {
  std::vector<memory::BlockInfo> blocks;
  blocks.reserve(state.blocks.size());
  PoolChange change;
  for (const Block& block : state.blocks) {
    blocks.push_back({.address = block.address,
                      .size_bytes = block.size_bytes,
                      .requested_bytes = block.requested_bytes});
    change.allocated.push_back(to_pointer(block.address));
  }
  impl_->allocator.process_events();
  for (const memory::SegmentInfo& segment : impl_->allocator.segments(to_memory(state.pool))) {
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.state != memory::BlockState::kAllocated) continue;
      change.freed.push_back(to_pointer(block.address));
    }
  }
  (void)impl_->allocator.restore_pool(to_memory(state.pool), blocks);
  return change;
}

// --- Reports -------------------------------------------------------------------------------------

std::string DeviceMemory::report() const { return memory::to_text(impl_->allocator.account()); }
std::string DeviceMemory::account_json() const { return to_json(impl_->allocator.account()); }
std::map<std::string, std::int64_t> DeviceMemory::flat_stats() const {
  return memory::flatten(impl_->allocator.statistics());
}

}  // namespace headroom::bridge
