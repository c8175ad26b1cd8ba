#include "headroom/memory/allocator.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/core.h"
#include "headroom/memory/internal/callbacks.h"
#include "headroom/memory/internal/pool_scopes.h"
#include "headroom/memory/internal/tags.h"

namespace headroom::memory {

using device::DeviceResult;
using device::DeviceStatus;
using device::StatusCode;

bool Allocator::is_forked() const noexcept { return core_.mutex_.is_forked(); }

namespace {

DeviceStatus forked(const char* call) noexcept {
  return {.code = StatusCode::kForked,
          .call = call,
          .detail = "allocators do not survive a fork; make new ones in the child"};
}

}  // namespace

Allocator::~Allocator() = default;

// --- Blocks --------------------------------------------------------------------------------------

inline DeviceAddress Allocator::allocate_or_fail(
    std::uint64_t size_bytes, StreamId stream, std::optional<AllocationFailure>& failure) noexcept {
  if (size_bytes == 0) return 0;
  try {
    if (size_bytes < device::kAbsurdSize) [[likely]] {
      return core_.do_allocate(size_bytes, stream, failure);
    }
    std::unique_lock lock(core_.mutex_);
    failure = core_.fail(lock,
                         {.reason = FailureReason::kTooLarge,
                          .asked_bytes = size_bytes,
                          .rounded_bytes = size_bytes,
                          .segment_bytes = size_bytes,
                          .stream = stream});
  } catch (const Forked&) {
    failure = AllocationFailure{.reason = FailureReason::kDevice, .status = forked("allocate")};
  } catch (const internal::FilterThrew&) {
    failure = AllocationFailure{.reason = FailureReason::kDevice,
                                .status = {.code = StatusCode::kInvalidArgument,
                                           .call = "allocate",
                                           .detail = "the filter of a private pool threw"}};
  } catch (...) {
    failure =
        AllocationFailure{.reason = FailureReason::kDevice,
                          .status = {.code = StatusCode::kOutOfHostMemory, .call = "allocate"}};
  }
  return 0;
}

AllocationResult<DeviceAddress> Allocator::try_allocate(std::uint64_t size_bytes,
                                                        StreamId stream) noexcept {
  std::optional<AllocationFailure> failure;
  const DeviceAddress address = allocate_or_fail(size_bytes, stream, failure);
  if (failure) return Unexpected(*std::move(failure));
  return address;
}

namespace {

[[noreturn]] void throw_failure(const AllocationFailure& failure) {
  if (failure.reason == FailureReason::kDevice) throw Error(to_string(failure.status));
  if (failure.report == nullptr) throw std::bad_alloc();
  throw OutOfMemory(failure.report);
}

}  // namespace

DeviceAddress Allocator::allocate(std::uint64_t size_bytes, StreamId stream) {
  std::optional<AllocationFailure> failure;
  const DeviceAddress address = allocate_or_fail(size_bytes, stream, failure);
  if (!failure) [[likely]] {
    return address;
  }
  throw_failure(*failure);
}

DeviceResult<void> Allocator::try_free(DeviceAddress address) noexcept {
  if (address == 0) return {};
  try {
    return core_.do_free(address);
  } catch (const Forked&) {
    return Unexpected(forked("free"));
  } catch (...) {
    return Unexpected(DeviceStatus{.code = StatusCode::kOutOfHostMemory, .call = "free"});
  }
}

void Allocator::free(DeviceAddress address) noexcept {
  const auto freed = try_free(address);
  if (freed || freed.error() == StatusCode::kForked) return;
  bool is_first = false;
  {
    const std::lock_guard lock(core_.mutex_);
    is_first = core_.misuses_++ == 0;
  }
  if (!is_first) return;
  try {
    std::fprintf(stderr,
                 "headroom: %s; further mistakes of this kind are only counted\n",
                 to_string(freed.error()).c_str());
  } catch (...) {  // No memory for the message: the count has it.
    return;
  }
}

DeviceResult<void> Allocator::record_stream(DeviceAddress address, StreamId stream) noexcept {
  if (address == 0) return {};
  try {
    return core_.do_record_stream(address, stream);
  } catch (const Forked&) {
    return Unexpected(forked("record_stream"));
  } catch (...) {
    return Unexpected(DeviceStatus{.code = StatusCode::kOutOfHostMemory, .call = "record_stream"});
  }
}

void Allocator::process_events() noexcept {
  try {
    core_.do_process_events();
  } catch (...) {  // What did not complete now completes with the next allocation.
    return;
  }
}

std::optional<BlockInfo> Allocator::find_block(DeviceAddress address) const {
  if (is_forked()) return std::nullopt;
  const std::lock_guard lock(core_.mutex_);
  std::optional<BlockInfo> block = core_.find_block_locked(address);
  if (block) block->tag = core_.tag_of(address);
  return block;
}

std::optional<BlockPlace> Allocator::locate(DeviceAddress address) const {
  if (is_forked()) return std::nullopt;
  const std::lock_guard lock(core_.mutex_);
  const AllocatorCore::ThreadsPaused paused(core_);
  std::optional<BlockPlace> place = core_.locate_locked(address);
  if (place) place->block.tag = core_.tag_of(place->block.address);
  return place;
}

std::vector<PageAt> Allocator::pages_of(DeviceAddress address) const {
  const std::lock_guard lock(core_.mutex_);
  const AllocatorCore::ThreadsPaused paused(core_);
  return core_.pages_of_locked(address);
}

// --- Settings and captures -----------------------------------------------------------------------

AllocatorChoice Allocator::settings() const {
  const std::lock_guard lock(core_.mutex_);
  return core_.core_settings();
}

void Allocator::configure(const AllocatorChoice& wanted) { core_.do_configure(wanted); }

void Allocator::configure(std::string_view text) {
  const auto wanted = parse_choice(text, settings());
  if (!wanted) throw InvalidArgument(wanted.error());
  core_.do_configure(*wanted);
}

void Allocator::begin_capture() {
  const std::lock_guard lock(core_.mutex_);
  ++core_.captures_;
  core_.captures_changed();
}

void Allocator::end_capture() {
  const std::lock_guard lock(core_.mutex_);
  if (core_.captures_ == 0) throw InvalidArgument("end_capture: no capture is under way");
  --core_.captures_;
  core_.captures_changed();
}

bool Allocator::is_capturing() const noexcept {
  if (is_forked()) return false;
  const std::lock_guard lock(core_.mutex_);
  return core_.has_capture();
}

// --- Limits --------------------------------------------------------------------------------------

void Allocator::set_limit(std::optional<std::uint64_t> limit_bytes) noexcept {
  if (is_forked()) return;
  const std::lock_guard lock(core_.mutex_);
  core_.limit_ = limit_bytes;
}

std::optional<std::uint64_t> Allocator::limit() const noexcept {
  if (is_forked()) return std::nullopt;
  const std::lock_guard lock(core_.mutex_);
  return core_.limit_;
}

void Allocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw InvalidArgument("set_memory_fraction: the share of the device must be from 0 to 1, not " +
                          std::to_string(fraction));
  }
  const std::optional<std::uint64_t> bytes = core_.limit_for_fraction(fraction);
  const std::lock_guard lock(core_.mutex_);
  core_.limit_ = bytes;
}

double Allocator::memory_fraction() const noexcept {
  const std::optional<std::uint64_t> bytes = limit();
  if (!bytes) return 1.0;
  return static_cast<double>(*bytes) / static_cast<double>(device_.properties().total_bytes);
}

// --- Cached memory and pools ---------------------------------------------------------------------

std::uint64_t Allocator::empty_cache() noexcept { return empty_cache(PoolId{}); }

std::uint64_t Allocator::empty_cache(PoolId pool) noexcept {
  try {
    return core_.do_empty_cache(pool);
  } catch (...) {  // What could not be given back is still cached.
    return 0;
  }
}

std::uint64_t Allocator::largest_cached_bytes(StreamId stream) const {
  const std::lock_guard lock(core_.mutex_);
  const AllocatorCore::ThreadsPaused paused(core_);
  return core_.core_account(stream).largest_cached_bytes;
}

std::uint64_t Allocator::trim(std::uint64_t keep_bytes) noexcept {
  try {
    return core_.do_trim(keep_bytes);
  } catch (...) {  // What could not be given back is still cached.
    return 0;
  }
}

void Allocator::mark_step() noexcept {
  try {
    core_.do_mark_step();
  } catch (...) {  // Without host memory cached memory stays where it is.
  }
}

AllocationResult<std::uint64_t> Allocator::reserve(std::optional<std::uint64_t> size_bytes,
                                                   StreamId stream) noexcept {
  if (size_bytes && *size_bytes == 0) return std::uint64_t{0};
  try {
    return core_.do_reserve(size_bytes, stream);
  } catch (const Forked&) {
    return Unexpected(
        AllocationFailure{.reason = FailureReason::kDevice, .status = forked("reserve")});
  } catch (...) {
    return Unexpected(
        AllocationFailure{.reason = FailureReason::kDevice,
                          .status = {.code = StatusCode::kOutOfHostMemory, .call = "reserve"}});
  }
}

PoolId Allocator::new_pool_id() noexcept {
  if (is_forked()) return {};
  const std::lock_guard lock(core_.mutex_);
  return {.graph = 0, .user = core_.next_pool_++};
}

namespace {

void check_private(PoolId id, const char* call) {
  if (!id.is_default()) return;
  throw InvalidArgument(
      std::string(call) +
      ": (0, 0) is the default pool; new_pool_id() makes an id for a private one");
}

}  // namespace

void Allocator::begin_allocate_to_pool(PoolId id, StreamFilter filter) {
  check_private(id, "begin_allocate_to_pool");
  core_.do_begin_allocate_to_pool(id, std::move(filter));
}

void Allocator::end_allocate_to_pool(PoolId id) { core_.do_end_allocate_to_pool(id); }

void Allocator::retain_pool(PoolId id) {
  check_private(id, "retain_pool");
  const std::lock_guard lock(core_.mutex_);
  if (core_.find_pool(id) == nullptr) return core_.make_pool(id);
  ++core_.pool_in_use(id, "retain_pool").use_count;
}

void Allocator::release_pool(PoolId id) {
  const std::lock_guard lock(core_.mutex_);
  internal::PoolUse& pool = core_.pool_in_use(id, "release_pool");
  if (--pool.use_count == 0) pool.never_splits = false;
}

int Allocator::pool_use_count(PoolId id) const noexcept {
  if (is_forked()) return 0;
  const std::lock_guard lock(core_.mutex_);
  const internal::PoolUse* const pool = core_.find_pool(id);
  return pool != nullptr ? pool->use_count : 0;
}

void Allocator::set_pool_no_split(PoolId id) {
  const std::lock_guard lock(core_.mutex_);
  core_.pool_in_use(id, "set_pool_no_split").never_splits = true;
}

void Allocator::set_pool_use_on_failure(PoolId id, bool serves_failures) {
  const std::lock_guard lock(core_.mutex_);
  core_.pool_in_use(id, "set_pool_use_on_failure").serves_failures = serves_failures;
}

void Allocator::set_pool_source(PoolId id, SegmentSource source) {
  check_private(id, "set_pool_source");
  if (!source.allocate || !source.free) {
    throw InvalidArgument("set_pool_source: a source needs both of its functions");
  }
  core_.do_set_pool_source(id, std::make_shared<const SegmentSource>(std::move(source)));
}

PoolChange Allocator::restore_pool(PoolId id, std::span<const BlockInfo> blocks) {
  check_private(id, "restore_pool");
  return core_.do_restore_pool(id, blocks);
}

// --- Sleep ---------------------------------------------------------------------------------------

SleepChange Allocator::sleep(std::string_view scope, SleepContents contents) {
  if (is_forked()) throw Forked();
  return core_.do_sleep(scope, contents);
}

AllocationResult<SleepChange> Allocator::try_wake(std::string_view scope) {
  if (is_forked()) {
    return Unexpected(
        AllocationFailure{.reason = FailureReason::kDevice, .status = forked("wake")});
  }
  try {
    return core_.do_wake(scope);
  } catch (const std::bad_alloc&) {
    return Unexpected(
        AllocationFailure{.reason = FailureReason::kDevice,
                          .status = {.code = StatusCode::kOutOfHostMemory, .call = "wake"}});
  }
}

SleepChange Allocator::wake(std::string_view scope) {
  const auto woken = try_wake(scope);
  if (woken) return *woken;
  throw_failure(woken.error());
}

// --- Reports -------------------------------------------------------------------------------------

Statistics Allocator::statistics() const {
  std::unique_lock lock(core_.mutex_);
  core_.fold_threads();
  Statistics stats = core_.stats_;
  lock.unlock();
  stats.sum_up();
  return stats;
}

void Allocator::reset_peak_statistics() noexcept {
  if (is_forked()) return;
  const std::lock_guard lock(core_.mutex_);
  core_.fold_threads();
  core_.stats_.reset_peak();
}

void Allocator::reset_accumulated_statistics() noexcept {
  if (is_forked()) return;
  const std::lock_guard lock(core_.mutex_);
  core_.fold_threads();
  core_.stats_.reset_accumulated();
}

std::uint64_t Allocator::misuse_count() const noexcept {
  if (is_forked()) return 0;
  const std::lock_guard lock(core_.mutex_);
  return core_.misuses_;
}

Account Allocator::account() const {
  std::unique_lock lock(core_.mutex_);
  return core_.account_for({}, lock, nullptr);
}

std::vector<SegmentInfo> Allocator::segments(std::uint64_t* sequence) const {
  const std::lock_guard lock(core_.mutex_);
  const AllocatorCore::ThreadsPaused paused(core_);
  if (sequence != nullptr) *sequence = core_.sequence_;
  std::vector<SegmentInfo> segments = core_.segments_locked();
  core_.add_tags(segments);
  return segments;
}

std::vector<SegmentInfo> Allocator::segments(PoolId pool) const {
  std::vector<SegmentInfo> all = segments();
  std::erase_if(all, [pool](const SegmentInfo& segment) { return segment.pool != pool; });
  return all;
}

std::uint64_t Allocator::fingerprint() const {
  const std::lock_guard lock(core_.mutex_);
  const AllocatorCore::ThreadsPaused paused(core_);
  return core_.core_fingerprint();
}

std::optional<std::string> Allocator::check_invariants() const {
  const std::lock_guard lock(core_.mutex_);
  const AllocatorCore::ThreadsPaused paused(core_);
  const Statistics& s = core_.stats_;
  const std::int64_t allocated = s.allocated_bytes.all.current;
  if (!(0 <= allocated && allocated <= s.active_bytes.all.current &&
        s.active_bytes.all.current <= s.reserved_bytes.all.current)) {
    return "allocated <= active <= reserved does not hold";
  }
  std::int64_t by_category = 0;
  for (const Stat& stat : s.category_bytes) by_category += stat.current;
  if (by_category != allocated) return "the categories do not sum up to allocated";
  for (const StatArray* array : {&s.allocation,
                                 &s.segment,
                                 &s.active,
                                 &s.inactive_split,
                                 &s.allocated_bytes,
                                 &s.reserved_bytes,
                                 &s.active_bytes,
                                 &s.inactive_split_bytes,
                                 &s.requested_bytes}) {
    if (array->all.current != array->small_pool.current + array->large_pool.current) {
      return "a statistic is not the sum of its pools";
    }
  }
  return core_.check_core_invariants();
}

// --- Who is told ---------------------------------------------------------------------------------

void Allocator::add_sink(EventSink& sink, Actions wanted) {
  const std::lock_guard lock(core_.mutex_);
  const auto known = std::ranges::find(core_.sinks_, &sink, &AllocatorCore::Listener::sink);
  if (known != core_.sinks_.end()) {
    known->wanted = wanted;
  } else {
    core_.sinks_.push_back({.sink = &sink, .wanted = wanted});
  }
  core_.update_wanted();
}

void Allocator::remove_sink(EventSink& sink) noexcept {
  if (is_forked()) return;
  const std::lock_guard lock(core_.mutex_);
  std::erase_if(core_.sinks_, [&sink](const AllocatorCore::Listener& listener) {
    return listener.sink == &sink;
  });
  core_.update_wanted();
}

void Allocator::set_tag_maker(TagMaker maker) {
  auto tags = maker ? std::make_unique<internal::Tags>(std::move(maker)) : nullptr;
  std::unique_lock lock(core_.mutex_);
  core_.tags_.swap(tags);
  core_.makes_tags_.store(core_.tags_ != nullptr, std::memory_order_relaxed);
  core_.update_wanted();
  lock.unlock();  // what the old ones hold may be anything
}

Allocator::CallbackId Allocator::add_free_callback(std::function<bool()> callback) {
  auto shared = std::make_shared<const std::function<bool()>>(std::move(callback));
  const std::lock_guard lock(core_.mutex_);
  core_.callbacks_->on_free.emplace_back(core_.callbacks_->next, std::move(shared));
  return core_.callbacks_->next++;
}

Allocator::CallbackId Allocator::add_out_of_memory_callback(
    std::function<void(const OutOfMemoryReport&)> callback) {
  auto shared =
      std::make_shared<const std::function<void(const OutOfMemoryReport&)>>(std::move(callback));
  const std::lock_guard lock(core_.mutex_);
  core_.callbacks_->on_oom.emplace_back(core_.callbacks_->next, std::move(shared));
  return core_.callbacks_->next++;
}

void Allocator::remove_callback(CallbackId id) noexcept {
  if (is_forked()) return;
  std::unique_lock lock(core_.mutex_);
  const auto on_free = internal::Callbacks::take(core_.callbacks_->on_free, id);
  const auto on_oom = internal::Callbacks::take(core_.callbacks_->on_oom, id);
  lock.unlock();
}

}  // namespace headroom::memory
