#include "headroom/memory/allocator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"
#include "headroom/memory/internal/notes.h"
#include "headroom/memory/internal/pool_scopes.h"

namespace headroom::memory {

using device::DeviceResult;
using device::DeviceStatus;
using device::StatusCode;

// Shared, so that what they hold is neither copied nor destroyed under the lock: it may be memory
// of this allocator.
struct Allocator::Callbacks {
  template <class Function>
  using List = std::vector<std::pair<CallbackId, std::shared_ptr<const Function>>>;

  // Takes it out of the list, to be let go of without the lock.
  template <class Function>
  static std::shared_ptr<const Function> take(List<Function>& list, CallbackId id) noexcept {
    const auto found =
        std::ranges::find_if(list, [id](const auto& entry) { return entry.first == id; });
    if (found == list.end()) return nullptr;
    auto taken = std::move(found->second);
    list.erase(found);
    return taken;
  }

  CallbackId next = 1;
  List<std::function<bool()>> on_free;
  List<std::function<void(const OutOfMemoryReport&)>> on_oom;
};

// Keeps threads from working without the lock, which is held, for the time of a scope.
class Allocator::ThreadsHeld {
 public:
  explicit ThreadsHeld(const Allocator& allocator) noexcept : allocator_(&allocator) {
    allocator.hold_threads();
  }
  ~ThreadsHeld() { let_go(); }
  ThreadsHeld(const ThreadsHeld&) = delete;
  ThreadsHeld& operator=(const ThreadsHeld&) = delete;

  // Before the lock is let go of.
  void let_go() noexcept {
    if (allocator_ != nullptr) std::exchange(allocator_, nullptr)->release_threads();
  }

 private:
  const Allocator* allocator_;
};

Allocator::Allocator(device::Device& device)
    : device_(device), callbacks_(std::make_unique<Callbacks>()) {}

Allocator::~Allocator() = default;

// --- Blocks --------------------------------------------------------------------------------------

inline DeviceAddress Allocator::allocate_or_fail(
    std::uint64_t size_bytes, StreamId stream, std::optional<AllocationFailure>& failure) noexcept {
  if (size_bytes == 0) return 0;
  try {
    if (size_bytes < device::kAbsurdSize) [[likely]] {
      return do_allocate(size_bytes, stream, failure);
    }
    std::unique_lock lock(mutex_);
    failure = fail(lock,
                   {.reason = FailureReason::kTooLarge,
                    .asked_bytes = size_bytes,
                    .rounded_bytes = size_bytes,
                    .segment_bytes = size_bytes,
                    .stream = stream});
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

DeviceAddress Allocator::allocate(std::uint64_t size_bytes, StreamId stream) {
  std::optional<AllocationFailure> failure;
  const DeviceAddress address = allocate_or_fail(size_bytes, stream, failure);
  if (!failure) [[likely]] {
    return address;
  }
  if (failure->reason == FailureReason::kDevice) throw Error(to_string(failure->status));
  if (failure->report == nullptr) throw std::bad_alloc();
  throw OutOfMemory(failure->report);
}

DeviceResult<void> Allocator::try_free(DeviceAddress address) noexcept {
  if (address == 0) return {};
  try {
    return do_free(address);
  } catch (...) {
    return Unexpected(DeviceStatus{.code = StatusCode::kOutOfHostMemory, .call = "free"});
  }
}

void Allocator::free(DeviceAddress address) noexcept {
  const auto freed = try_free(address);
  if (freed) return;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = misuses_++ == 0;
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
    return do_record_stream(address, stream);
  } catch (...) {
    return Unexpected(DeviceStatus{.code = StatusCode::kOutOfHostMemory, .call = "record_stream"});
  }
}

void Allocator::process_events() noexcept {
  try {
    do_process_events();
  } catch (...) {  // What did not complete now completes with the next allocation.
    return;
  }
}

std::optional<BlockInfo> Allocator::find_block(DeviceAddress address) const {
  const std::lock_guard lock(mutex_);
  return find_block_locked(address);
}

// --- Limits --------------------------------------------------------------------------------------

void Allocator::set_limit(std::optional<std::uint64_t> limit_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  limit_ = limit_bytes;
}

std::optional<std::uint64_t> Allocator::limit() const noexcept {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void Allocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw InvalidArgument("set_memory_fraction: the share of the device must be from 0 to 1, not " +
                          std::to_string(fraction));
  }
  const std::optional<std::uint64_t> bytes = limit_for_fraction(fraction);
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

double Allocator::memory_fraction() const noexcept {
  const std::optional<std::uint64_t> bytes = limit();
  if (!bytes) return 1.0;
  return static_cast<double>(*bytes) / static_cast<double>(device_.properties().total_bytes);
}

std::optional<std::uint64_t> Allocator::limit_for_fraction(double fraction) const {
  if (fraction == 1.0) return std::nullopt;
  const auto total = static_cast<double>(device_.properties().total_bytes);
  return static_cast<std::uint64_t>(std::llround(fraction * total));
}

bool Allocator::limit_allows(std::uint64_t size_bytes) const noexcept {
  if (!limit_) return true;
  const std::optional<std::uint64_t> then = checked_add(reserved_bytes(), size_bytes);
  return then && *then <= *limit_;
}

// --- Cached memory and pools ---------------------------------------------------------------------

std::uint64_t Allocator::empty_cache() noexcept {
  try {
    return do_empty_cache();
  } catch (...) {  // What could not be given back is still cached.
    return 0;
  }
}

std::uint64_t Allocator::trim(std::uint64_t keep_bytes) noexcept {
  try {
    return do_trim(keep_bytes);
  } catch (...) {  // What could not be given back is still cached.
    return 0;
  }
}

void Allocator::mark_step() noexcept {
  try {
    do_mark_step();
  } catch (...) {  // Without host memory cached memory stays where it is.
  }
}

AllocationResult<std::uint64_t> Allocator::reserve(std::optional<std::uint64_t> size_bytes,
                                                   StreamId stream) noexcept {
  if (size_bytes && *size_bytes == 0) return std::uint64_t{0};
  try {
    return do_reserve(size_bytes, stream);
  } catch (...) {
    return Unexpected(
        AllocationFailure{.reason = FailureReason::kDevice,
                          .status = {.code = StatusCode::kOutOfHostMemory, .call = "reserve"}});
  }
}

PoolId Allocator::new_pool_id() noexcept {
  const std::lock_guard lock(mutex_);
  return {.graph = 0, .user = next_pool_++};
}

void Allocator::begin_allocate_to_pool(PoolId id, StreamFilter filter) {
  if (id.is_default()) {
    throw InvalidArgument(
        "begin_allocate_to_pool: (0, 0) is the default pool; new_pool_id() "
        "makes an id for a private one");
  }
  do_begin_allocate_to_pool(id, std::move(filter));
}

void Allocator::end_allocate_to_pool(PoolId id) { do_end_allocate_to_pool(id); }

void Allocator::release_pool(PoolId id) { do_release_pool(id); }

// --- What happened -------------------------------------------------------------------------------

void Allocator::tell_sinks(Action action,
                           const BlockNote& block,
                           std::uint64_t size_bytes) noexcept {
  const Event event{.action = action,
                    .category = block.context.category,
                    .is_small = block.is_small,
                    .annotation = block.context.annotation,
                    .address = block.address,
                    .size_bytes = size_bytes,
                    .stream = block.stream,
                    .pool = block.pool,
                    .sequence = sequence_ - 1,
                    .block_bytes = block.size_bytes};
  for (const Listener& listener : sinks_) {
    if (listener.wanted.has(action)) listener.sink->record(event);
  }
}

void Allocator::note_segment(Action action, const SegmentNote& segment) noexcept {
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
  tell_segment(action, segment);
}

void Allocator::count_segment(bool is_growth, bool is_small, std::uint64_t size_bytes) noexcept {
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

void Allocator::tell_segment(Action action, const SegmentNote& segment) noexcept {
  emit(action,
       {.address = segment.address,
        .stream = segment.stream,
        .pool = segment.pool,
        .is_small = segment.is_small},
       segment.size_bytes);
}

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

bool Allocator::run_free_callbacks(std::unique_lock<Mutex>& lock) noexcept {
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

AllocationFailure Allocator::fail(std::unique_lock<Mutex>& lock,
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

// --- Reports -------------------------------------------------------------------------------------

Statistics Allocator::statistics() const {
  std::unique_lock lock(mutex_);
  fold_threads();
  Statistics stats = stats_;
  lock.unlock();
  stats.sum_up();
  return stats;
}

void Allocator::reset_peak_statistics() noexcept {
  const std::lock_guard lock(mutex_);
  fold_threads();
  stats_.reset_peak();
}

void Allocator::reset_accumulated_statistics() noexcept {
  const std::lock_guard lock(mutex_);
  fold_threads();
  stats_.reset_accumulated();
}

std::uint64_t Allocator::misuse_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

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

Account Allocator::account_for(const FailedRequest& request,
                               std::unique_lock<Mutex>& lock,
                               CoreAccount* core) const {
  Account account{.device = device_.id(),
                  .limit_bytes = limit_,
                  .asked_bytes = request.asked_bytes,
                  .segment_asked_bytes = request.segment_bytes,
                  .asked_stream = request.stream};
  ThreadsHeld held(*this);
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
  held.let_go();
  lock.unlock();

  account.sites = sum_by_site(sites);
  const device::MemoryInfo unknown{.total_bytes = device_.properties().total_bytes};
  return with_device_lines(std::move(account),
                           info ? *info : unknown,
                           processes ? *processes : std::vector<device::ProcessMemory>{});
}

std::shared_ptr<const OutOfMemoryReport> Allocator::report_for(const FailedRequest& request,
                                                               std::unique_lock<Mutex>& lock) {
  auto report = std::make_shared<OutOfMemoryReport>();
  CoreAccount core{};
  report->account = account_for(request, lock, &core);
  report->explanation = explain(report->account);
  report->is_rejection = request.reason == FailureReason::kRejected;
  report->pytorch_text = pytorch_text(report->account, core, request);
  report->text = to_text(report->account, report->explanation);
  return report;
}

Account Allocator::account() const {
  std::unique_lock lock(mutex_);
  return account_for({}, lock, nullptr);
}

std::vector<SegmentInfo> Allocator::segments(std::uint64_t* sequence) const {
  const std::lock_guard lock(mutex_);
  const ThreadsHeld held(*this);
  if (sequence != nullptr) *sequence = sequence_;
  return segments_locked();
}

std::uint64_t Allocator::fingerprint() const {
  const std::lock_guard lock(mutex_);
  const ThreadsHeld held(*this);
  return core_fingerprint();
}

std::optional<std::string> Allocator::check_invariants() const {
  const std::lock_guard lock(mutex_);
  const ThreadsHeld held(*this);
  const Statistics& s = stats_;
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
  return check_core_invariants();
}

// --- Who is told ---------------------------------------------------------------------------------

void Allocator::add_sink(EventSink& sink, Actions wanted) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(sinks_, &sink, &Listener::sink);
  if (known != sinks_.end()) {
    known->wanted = wanted;
  } else {
    sinks_.push_back({.sink = &sink, .wanted = wanted});
  }
  note_wishes();
}

void Allocator::remove_sink(EventSink& sink) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(sinks_, [&sink](const Listener& listener) { return listener.sink == &sink; });
  note_wishes();
}

void Allocator::remove_all_sinks() noexcept {
  const std::lock_guard lock(mutex_);
  sinks_.clear();
  note_wishes();
}

void Allocator::note_wishes() noexcept {
  wanted_ = {};
  for (const Listener& listener : sinks_) wanted_ |= listener.wanted;
  sinks_changed();
}

Allocator::CallbackId Allocator::add_free_callback(std::function<bool()> callback) {
  auto shared = std::make_shared<const std::function<bool()>>(std::move(callback));
  const std::lock_guard lock(mutex_);
  callbacks_->on_free.emplace_back(callbacks_->next, std::move(shared));
  return callbacks_->next++;
}

Allocator::CallbackId Allocator::add_out_of_memory_callback(
    std::function<void(const OutOfMemoryReport&)> callback) {
  auto shared =
      std::make_shared<const std::function<void(const OutOfMemoryReport&)>>(std::move(callback));
  const std::lock_guard lock(mutex_);
  callbacks_->on_oom.emplace_back(callbacks_->next, std::move(shared));
  return callbacks_->next++;
}

void Allocator::remove_callback(CallbackId id) noexcept {
  std::unique_lock lock(mutex_);
  const auto on_free = Callbacks::take(callbacks_->on_free, id);
  const auto on_oom = Callbacks::take(callbacks_->on_oom, id);
  lock.unlock();
}

// --- Peak scopes ---------------------------------------------------------------------------------

void Allocator::fold_peaks() noexcept {
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

PeakScope::PeakScope(Allocator& allocator) : allocator_(allocator) {
  const std::lock_guard lock(allocator_.mutex_);
  allocator_.fold_peaks();
  peaks_ = allocator_.running_;
  allocator_.scopes_.push_back(this);
}

PeakScope::~PeakScope() {
  const std::lock_guard lock(allocator_.mutex_);
  allocator_.fold_peaks();
  std::erase(allocator_.scopes_, this);
}

Allocator::Peaks PeakScope::read() const {
  const std::lock_guard lock(allocator_.mutex_);
  allocator_.fold_peaks();
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
