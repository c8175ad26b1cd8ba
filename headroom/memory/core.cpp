#include "headroom/memory/core.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>
#include <unordered_map>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/memory/internal/callbacks.h"
#include "headroom/memory/internal/known_streams.h"
#include "headroom/memory/internal/pool_scopes.h"
#include "headroom/memory/internal/records.h"
#include "headroom/memory/internal/tags.h"
#include "headroom/memory/peak_scope.h"

namespace headroom::memory {

using device::DeviceResult;

namespace {

// One callback of many: what it throws keeps nobody else from being called.
template <class Call>
void call_back(const char* kind, Call&& call) noexcept {
  try {
    call();
  } catch (...) {
    std::fprintf(stderr, "headroom: %s callback threw; it is ignored\n", kind);
  }
}

}  // namespace

AllocatorCore::AllocatorCore(device::Device& device)
    : Allocator(device, *this),
      device_(device),
      known_streams_(std::make_unique<internal::KnownStreams>()),
      callbacks_(std::make_unique<internal::Callbacks>()) {}

// In the child of a fork another thread may have been changing any of these.
AllocatorCore::~AllocatorCore() {
  if (!is_forked()) return;
  keep_for_ever(callbacks_.release());
  keep_for_ever(tags_.release());
  keep_for_ever(known_streams_.release());
  keep_for_ever(new (std::nothrow) auto(std::move(sinks_)));
  keep_for_ever(new (std::nothrow) auto(std::move(scopes_)));
}

void AllocatorCore::begin_destruction() noexcept {
  const std::lock_guard lock(mutex_);
  sinks_.clear();
  captures_ = 0;
  update_wanted();
  captures_changed();
}

DeviceResult<void> AllocatorCore::check_stream(StreamId stream) {
  return known_streams_->check(device_, stream);
}

void AllocatorCore::trust_stream(StreamId stream) { known_streams_->trust(stream); }

bool AllocatorCore::is_released(StreamId stream) const noexcept {
  return known_streams_->is_gone(device_, stream);
}

std::vector<PageAt> AllocatorCore::pages_of_locked(DeviceAddress) const {
  throw InvalidArgument("pages_of: this allocator has no pages; the paged one has (backend:paged)");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): those that can keep it
void AllocatorCore::do_set_pool_source(PoolId, std::shared_ptr<const SegmentSource>) {
  throw InvalidArgument(
      "set_pool_source: this allocator cannot; the paged one can (backend:paged)");
}

SleepChange AllocatorCore::do_sleep(std::string_view, SleepContents) {
  throw InvalidArgument("sleep: this allocator cannot; the paged one can (backend:paged)");
}

AllocationResult<SleepChange> AllocatorCore::do_wake(std::string_view) {
  throw InvalidArgument("wake: this allocator cannot; the paged one can (backend:paged)");
}

PoolChange AllocatorCore::do_restore_pool(PoolId, std::span<const BlockInfo>) {
  throw InvalidArgument("restore_pool: this allocator cannot; the paged one can (backend:paged)");
}

std::optional<std::uint64_t> AllocatorCore::limit_for_fraction(double fraction) const {
  if (fraction == 1.0) return std::nullopt;
  const auto total = static_cast<double>(device_.properties().total_bytes);
  return static_cast<std::uint64_t>(std::llround(fraction * total));
}

bool AllocatorCore::limit_allows(std::uint64_t size_bytes) const noexcept {
  if (!limit_) return true;
  const std::optional<std::uint64_t> then = checked_add(reserved_bytes(), size_bytes);
  return then && *then <= *limit_;
}

// --- What happened -------------------------------------------------------------------------------

void AllocatorCore::send_to_sinks(Action action,
                                  const BlockRecord& block,
                                  std::uint64_t size_bytes) noexcept {
  const Tag* tag = nullptr;
  if (tags_ != nullptr) tag = tags_->begin(action, block.address, current_tag());
  const Event event{.action = action,
                    .category = block.context.category,
                    .is_small = block.is_small,
                    .annotation = block.context.annotation,
                    .address = block.address,
                    .size_bytes = size_bytes,
                    .stream = block.stream,
                    .pool = block.pool,
                    .sequence = sequence_ - 1,
                    .block_bytes = block.size_bytes,
                    .tag = tag};
  for (const Listener& listener : sinks_) {
    if (listener.wanted.has(action)) listener.sink->record(event);
  }
  if (tags_ != nullptr) tags_->told(action, block.address, size_bytes);
}

void AllocatorCore::record_segment(Action action, const SegmentRecord& segment) noexcept {
  const bool small = segment.is_small;
  switch (action) {
    case Action::kSegmentAlloc:
      stats_.segment.increase(small, 1);
      [[fallthrough]];
    case Action::kSegmentMap:
      stats_.reserved_bytes.increase(small, segment.size_bytes);
      ++stats_.num_device_alloc;
      break;
    case Action::kSegmentFree:
      stats_.segment.decrease(small, 1);
      [[fallthrough]];
    default:
      stats_.reserved_bytes.decrease(small, segment.size_bytes);
      ++stats_.num_device_free;
  }
  running_.reserved = std::max(running_.reserved, stats_.reserved_bytes.all.current);
  emit_segment(action, segment);
}

void AllocatorCore::add_to_statistics_segment(bool is_growth,
                                              bool is_small,
                                              std::uint64_t size_bytes) noexcept {
  if (is_growth) {
    stats_.segment.increase(is_small, 1);
    stats_.reserved_bytes.increase(is_small, size_bytes);
    ++stats_.num_device_alloc;
  } else {
    stats_.segment.decrease(is_small, 1);
    stats_.reserved_bytes.decrease(is_small, size_bytes);
    ++stats_.num_device_free;
  }
  running_.reserved = std::max(running_.reserved, stats_.reserved_bytes.all.current);
}

void AllocatorCore::emit_segment(Action action, const SegmentRecord& segment) noexcept {
  emit(action,
       {.address = segment.address,
        .stream = segment.stream,
        .pool = segment.pool,
        .is_small = segment.is_small},
       segment.size_bytes);
}

bool AllocatorCore::run_free_callbacks(std::unique_lock<Mutex>& lock) {
  if (callbacks_->on_free.empty()) return false;
  bool freed = false;
  try {
    const auto callbacks = callbacks_->on_free;
    lock.unlock();
    for (const auto& entry : callbacks) {
      call_back("a free-memory", [&] { freed = (*entry.second)() || freed; });
    }
  } catch (...) {  // No memory to copy the list: nobody can be asked.
    freed = false;
  }
  if (!lock.owns_lock()) lock.lock();
  fold_threads();  // what the callbacks freed without the lock happened before what comes now
  return freed;
}

AllocationFailure AllocatorCore::fail(std::unique_lock<Mutex>& lock,
                                      const FailedRequest& request) noexcept {
  AllocationFailure failure{.reason = request.reason, .status = request.status};
  if (request.reason == FailureReason::kDevice) return failure;
  if (request.reason == FailureReason::kOutOfMemory) {
    // PyTorch's `oom` entry carries the device's free bytes in the address field.
    const auto info = device_.memory_info();
    ++stats_.num_ooms;
    emit(Action::kOutOfMemory,
         {.address = info ? info->free_bytes : 0, .stream = request.stream},
         request.rounded_bytes);
  }
  try {
    failure.report = report_for(request, lock);
    const auto callbacks = [this] {
      const std::lock_guard guard(mutex_);
      return callbacks_->on_oom;
    }();
    for (const auto& entry : callbacks) {
      call_back("an out-of-memory", [&] { (*entry.second)(*failure.report); });
    }
  } catch (...) {  // No memory for it: the failure stands without its report.
    return failure;
  }
  return failure;
}

void AllocatorCore::update_wanted() noexcept {
  wanted_ = {};
  for (const Listener& listener : sinks_) wanted_ |= listener.wanted;
  if (tags_ != nullptr) wanted_ |= kAllActions;
  sinks_changed();
}

// --- Tags ----------------------------------------------------------------------------------------

namespace {

// The innermost scope of this thread.
thread_local constinit void* t_tag_scope = nullptr;  // NOLINT(readability-identifier-naming)

}  // namespace

void AllocatorCore::TagScope::begin(AllocatorCore& core) {
  std::shared_ptr<const TagMaker> maker;
  {
    const std::lock_guard lock(core.mutex_);
    if (core.tags_ != nullptr) maker = core.tags_->maker();
  }
  if (maker == nullptr) return;
  call_back("a tag", [&] { tag_ = (*maker)(); });
  core_ = &core;
  outer_ = static_cast<TagScope*>(std::exchange(t_tag_scope, this));
}

AllocatorCore::TagScope::TagScope(AllocatorCore& core, Tag tag) noexcept
    : core_(&core),
      outer_(static_cast<TagScope*>(std::exchange(t_tag_scope, this))),
      tag_(std::move(tag)) {}

void AllocatorCore::TagScope::end() noexcept { t_tag_scope = outer_; }

const Tag* AllocatorCore::current_tag() const noexcept {
  const auto* const scope = static_cast<const TagScope*>(t_tag_scope);
  return scope != nullptr && scope->core_ == this ? &scope->tag_ : nullptr;
}

Tag AllocatorCore::tag_of(DeviceAddress block) const {
  return tags_ != nullptr ? tags_->of_block(block) : Tag{};
}

void AllocatorCore::add_tags(std::vector<SegmentInfo>& segments) const {
  if (tags_ == nullptr) return;
  for (SegmentInfo& segment : segments) {
    segment.tag = tags_->of_segment(segment.address);
    for (BlockInfo& block : segment.blocks) {
      if (block.state != BlockState::kInactive) block.tag = tags_->of_block(block.address);
    }
  }
}

internal::PoolUse& AllocatorCore::pool_in_use(PoolId id, const char* call) const {
  internal::PoolUse* const pool = find_pool(id);
  if (pool == nullptr || pool->use_count == 0) {
    throw InvalidArgument(std::string(call) + ": there is no such pool, or it was released before");
  }
  return *pool;
}

// --- Reports -------------------------------------------------------------------------------------

namespace {

std::vector<SiteBytes> sum_by_site(const std::unordered_map<AnnotationId, SiteBytes>& by_id) {
  std::vector<SiteBytes> sites;
  for (const auto& [id, bytes] : by_id) {
    sites.push_back(bytes);
    sites.back().site = id == 0 ? "(no annotation)" : annotation_path(id);
  }
  std::ranges::sort(sites, [](const SiteBytes& a, const SiteBytes& b) {
    return a.size_bytes != b.size_bytes ? a.size_bytes > b.size_bytes : a.site < b.site;
  });
  return sites;
}

}  // namespace

Account AllocatorCore::account_for(const FailedRequest& request,
                                   std::unique_lock<Mutex>& lock,
                                   CoreAccount* core) const {
  Account account{.device = device_.id(),
                  .limit_bytes = limit_,
                  .asked_bytes = request.asked_bytes,
                  .segment_asked_bytes = request.segment_bytes,
                  .asked_stream = request.stream};
  ThreadsPaused paused(*this);
  const CoreAccount cached = core_account(request.stream);
  if (core != nullptr) *core = cached;
  account.cached_stream_bytes = cached.cached_stream_bytes;
  account.cached_hard_bytes = cached.cached_hard_bytes;
  account.cached_soft_bytes = cached.cached_soft_bytes;
  account.largest_cached_bytes = cached.largest_cached_bytes;
  account.is_expandable = cached.is_expandable;
  account.page_bytes = cached.page_bytes;
  if (account.page_bytes != 0) {
    account.segment_asked_bytes =
        checked_round_up(request.segment_bytes, account.page_bytes).value_or(device::kAbsurdSize);
  }
  account.pending_bytes = static_cast<std::uint64_t>(stats_.active_bytes.all.current -
                                                     stats_.allocated_bytes.all.current);
  account.sleeping_bytes = static_cast<std::uint64_t>(stats_.sleeping_bytes.current);
  std::unordered_map<AnnotationId, SiteBytes> sites;
  for (const LiveBlock& block : live_blocks()) {
    account.live_bytes[static_cast<std::size_t>(block.context.category)] += block.requested_bytes;
    account.rounding_bytes += block.size_bytes - block.requested_bytes;
    SiteBytes& site = sites[block.context.annotation];
    site.size_bytes += block.requested_bytes;
    ++site.blocks;
  }
  // Read while nobody can allocate, so that the lines belong to one moment.
  const auto info = device_.memory_info();
  const auto processes = device_.processes();
  paused.resume();
  lock.unlock();

  account.sites = sum_by_site(sites);
  const device::MemoryInfo unknown{.total_bytes = device_.properties().total_bytes};
  return with_device_lines(std::move(account),
                           info ? *info : unknown,
                           processes ? *processes : std::vector<device::ProcessMemory>{});
}

std::shared_ptr<const OutOfMemoryReport> AllocatorCore::report_for(const FailedRequest& request,
                                                                   std::unique_lock<Mutex>& lock) {
  auto report = std::make_shared<OutOfMemoryReport>();
  CoreAccount core{};
  report->account = account_for(request, lock, &core);
  report->explanation = explain(report->account);
  report->reason = request.reason;
  report->version = core.version;
  report->cached_private_bytes = core.cached_private_bytes;
  report->expandable_reserve_bytes = core.expandable_reserve_bytes;
  report->text = to_text(report->account, report->explanation);
  return report;
}

// --- Peak scopes ---------------------------------------------------------------------------------

void AllocatorCore::fold_peaks() noexcept {
  fold_threads();
  for (PeakScope* scope : scopes_) {
    scope->peaks_.allocated = std::max(scope->peaks_.allocated, running_.allocated);
    scope->peaks_.reserved = std::max(scope->peaks_.reserved, running_.reserved);
    scope->peaks_.live = std::max(scope->peaks_.live, running_.live);
  }
  running_ = {.allocated = stats_.allocated_bytes.all.current,
              .reserved = stats_.reserved_bytes.all.current,
              .live = stats_.live_bytes.current};
}

PeakScope::PeakScope(Allocator& allocator) : core_(allocator.core_) {
  const std::lock_guard lock(core_.mutex_);
  core_.fold_peaks();
  peaks_ = core_.running_;
  core_.scopes_.push_back(this);
}

PeakScope::~PeakScope() {
  if (core_.is_forked()) return;
  const std::lock_guard lock(core_.mutex_);
  core_.fold_peaks();
  std::erase(core_.scopes_, this);
}

AllocatorCore::Peaks PeakScope::read() const {
  const std::lock_guard lock(core_.mutex_);
  core_.fold_peaks();
  return peaks_;
}

std::uint64_t PeakScope::peak_allocated() const {
  return static_cast<std::uint64_t>(read().allocated);
}
std::uint64_t PeakScope::peak_reserved() const {
  return static_cast<std::uint64_t>(read().reserved);
}
std::uint64_t PeakScope::peak_live() const { return static_cast<std::uint64_t>(read().live); }

}  // namespace headroom::memory
