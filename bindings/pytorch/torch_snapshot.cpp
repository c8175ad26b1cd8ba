// Statistics, snapshots and history, in PyTorch's values.
#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include "bindings/pytorch/torch_allocator.h"

namespace headroom_torch {

namespace bridge = headroom::bridge;
using c10::CachingAllocator::AcceleratorAllocatorConfig;
using cca::CUDAAllocatorConfig;

namespace {

bridge::DeviceMemory& memory_of(c10::DeviceIndex device) { return bridge::device_memory(device); }

c10::MempoolId_t to_torch(const bridge::PoolKey& pool) noexcept { return {pool.graph, pool.user}; }

// Only contexts that PyTorch made come back to it.
std::shared_ptr<c10::GatheredContext> to_torch(const bridge::Context& context) {
  return std::static_pointer_cast<c10::GatheredContext>(context);
}

c10::CachingAllocator::Stat to_torch(const bridge::Stat& from) noexcept {
  c10::CachingAllocator::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

c10::CachingAllocator::StatArray to_torch(const bridge::StatArray& from) noexcept {
  using c10::CachingAllocator::StatType;
  c10::CachingAllocator::StatArray to;
  to[static_cast<size_t>(StatType::AGGREGATE)] = to_torch(from.all);
  to[static_cast<size_t>(StatType::SMALL_POOL)] = to_torch(from.small_pool);
  to[static_cast<size_t>(StatType::LARGE_POOL)] = to_torch(from.large_pool);
  return to;
}

cca::TraceEntry::Action to_torch(bridge::TraceAction action) noexcept {
  return static_cast<cca::TraceEntry::Action>(action);  // in the same order
}
static_assert(static_cast<int>(bridge::TraceAction::kOutOfMemory) ==
              static_cast<int>(cca::TraceEntry::OOM));
static_assert(static_cast<int>(bridge::TraceAction::kSegmentMap) ==
              static_cast<int>(cca::TraceEntry::SEGMENT_MAP));

std::string text_of(const bridge::SharedText& text, const char* otherwise) {
  return text != nullptr ? *text : std::string(otherwise);
}

cca::TraceEntry to_torch(const bridge::TraceEntry& from) {
  cca::TraceEntry to(to_torch(from.action),
                     static_cast<c10::DeviceIndex>(from.device),
                     from.address,
                     from.size_bytes,
                     reinterpret_cast<void*>(from.stream),
                     to_torch(from.pool),
                     c10::getApproximateTime(),
                     to_torch(from.context),
                     text_of(from.compile_context, "N/A"),
                     text_of(from.user_metadata, ""));
  return to;
}

cca::SegmentInfo to_torch(const bridge::Segment& from, c10::DeviceIndex device) {
  cca::SegmentInfo to;
  to.device = device;
  to.address = from.address;
  to.total_size = from.size_bytes;
  to.requested_size = from.requested_bytes;
  to.allocated_size = from.allocated_bytes;
  to.active_size = from.active_bytes;
  to.stream = reinterpret_cast<void*>(from.stream);
  to.is_large = from.is_large;
  to.is_expandable = from.is_expandable;
  to.owner_private_pool_id = to_torch(from.pool);
  to.context_when_allocated = to_torch(from.context);
  to.blocks.reserve(from.blocks.size());
  for (const bridge::Block& block : from.blocks) {
    cca::BlockInfo& info = to.blocks.emplace_back();
    info.size = block.size_bytes;
    info.requested_size = block.requested_bytes;
    info.allocated = block.is_allocated;
    info.active = block.is_active;
    info.context_when_allocated = to_torch(block.context);
  }
  return to;
}

// What PyTorch's variables say. They set up nothing here, but readers of a snapshot expect them.
cca::AllocatorConfigInfo configuration() {
  cca::AllocatorConfigInfo info;
  info.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  info.max_split_size = AcceleratorAllocatorConfig::max_split_size();
  info.pinned_num_register_threads = CUDAAllocatorConfig::pinned_num_register_threads();
  info.expandable_segments = CUDAAllocatorConfig::expandable_segments();
  info.release_lock_on_malloc = CUDAAllocatorConfig::release_lock_on_cudamalloc();
  info.pinned_use_host_register = CUDAAllocatorConfig::pinned_use_cuda_host_register();
  info.graph_capture_record_stream_reuse = CUDAAllocatorConfig::graph_capture_record_stream_reuse();
  info.last_allocator_settings = c10::CachingAllocator::getAllocatorSettings();
  info.roundup_power2_divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  return info;
}

// The rate of the approximate clock is measured from the first call, when the allocator is
// installed, to each snapshot.
c10::ApproximateClockToUnixTimeConverter& clock_since_start() {
  static auto& clock = *new c10::ApproximateClockToUnixTimeConverter;
  return clock;
}

using Entry = c10::CachingDeviceAllocator::AnnotationEntry;

// What record_function said while a history was kept, as many of them as entries are.
class Annotations {
 public:
  static Annotations& instance() {
    static Annotations& annotations = *new Annotations;
    return annotations;
  }

  void set(bool is_enabled, size_t max_entries, bool clears) {
    const std::lock_guard lock(mutex_);
    is_enabled_ = is_enabled;
    max_entries_ = std::max<size_t>(max_entries, 1);
    if (clears || !is_enabled) all_.clear();
  }

  void add(Entry entry) {
    const std::lock_guard lock(mutex_);
    if (!is_enabled_) return;
    if (all_.size() >= max_entries_) all_.pop_front();
    all_.push_back(std::move(entry));
  }

  [[nodiscard]] std::vector<Entry> all() const {
    const std::lock_guard lock(mutex_);
    return {all_.begin(), all_.end()};
  }

 private:
  mutable std::mutex mutex_;
  bool is_enabled_ = false;
  size_t max_entries_ = 1;
  std::deque<Entry> all_;
};

}  // namespace

void start_clock() { (void)clock_since_start(); }

// --- Statistics ----------------------------------------------------------------------------------

cca::DeviceStats HeadroomAllocator::getDeviceStats(c10::DeviceIndex device) {
  const bridge::DeviceStats from = memory_of(device).stats();
  cca::DeviceStats to;
  to.allocation = to_torch(from.allocation);
  to.segment = to_torch(from.segment);
  to.active = to_torch(from.active);
  to.inactive_split = to_torch(from.inactive_split);
  to.allocated_bytes = to_torch(from.allocated_bytes);
  to.reserved_bytes = to_torch(from.reserved_bytes);
  to.active_bytes = to_torch(from.active_bytes);
  to.inactive_split_bytes = to_torch(from.inactive_split_bytes);
  to.requested_bytes = to_torch(from.requested_bytes);
  to.oversize_allocations = to_torch(from.oversize_allocations);
  to.oversize_segments = to_torch(from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.max_split_size = from.max_split_size;
  return to;
}

void HeadroomAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  memory_of(device).reset_accumulated_stats();
}

void HeadroomAllocator::resetPeakStats(c10::DeviceIndex device) {
  memory_of(device).reset_peak_stats();
}

// --- Snapshots and history -----------------------------------------------------------------------

cca::SnapshotInfo HeadroomAllocator::snapshot(c10::MempoolId_t pool, bool include_traces) {
  cca::SnapshotInfo info;
  const bridge::PoolKey key{.graph = pool.first, .user = pool.second};
  for (int i = 0; i < c10::cuda::device_count(); ++i) {
    auto& traces = info.device_traces.emplace_back();
    bridge::DeviceMemory* const memory = bridge::opened_memory(i);
    if (memory == nullptr) continue;
    const auto device = static_cast<c10::DeviceIndex>(i);
    if (include_traces) {
      for (const bridge::TraceEntry& entry : memory->trace()) {
        traces.push_back(to_torch(entry));
        traces.back().time_.t_ = entry.time_us;
      }
    }
    for (const bridge::Segment& segment : memory->segments(key)) {
      info.segments.push_back(to_torch(segment, device));
    }
    memory->record_snapshot();
  }
  if (include_traces) {
    info.external_annotations = Annotations::instance().all();
    const auto to_unix = clock_since_start().makeConverter();
    for (Entry& entry : info.external_annotations) {
      entry.time_.t_ = to_unix(entry.time_.approx_t_) / 1000;  // microseconds
    }
  }
  info.config_metadata = configuration();
  return info;
}

bool HeadroomAllocator::isHistoryEnabled() { return bridge::is_history_enabled(); }

void HeadroomAllocator::recordHistory(bool enabled,
                                      cca::CreateContextFn context_recorder,
                                      size_t max_entries,
                                      cca::RecordContext when,
                                      bool clears,
                                      const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(when == cca::RecordContext::NEVER || context_recorder != nullptr,
              "a history with stacks needs a function that makes them");
  for (const std::string& action : skip_actions)
    (void)c10::CachingDeviceAllocator::parseTraceEntryAction(action);
  bridge::HistorySettings settings{.is_enabled = enabled,
                                   .max_entries = max_entries,
                                   .keep = static_cast<bridge::KeepContexts>(when),
                                   .clears = clears,
                                   .skipped_actions = skip_actions};
  if (context_recorder != nullptr) {
    settings.make_context = [context_recorder]() -> bridge::Context { return context_recorder(); };
  }
  Annotations::instance().set(enabled, max_entries, clears);
  bridge::set_history(std::move(settings));
}

void HeadroomAllocator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& fields) {
  if (!bridge::is_history_enabled()) return;
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  Entry entry(device, c10::getApproximateTime());
  for (const auto& [name, value] : fields) entry.recordUserMetadata(name, value);
  Annotations::instance().add(std::move(entry));
}

void HeadroomAllocator::pushCompileContext(std::string& text) {
  bridge::push_compile_context(text);
}
void HeadroomAllocator::popCompileContext() { bridge::pop_compile_context(); }
void HeadroomAllocator::setUserMetadata(const std::string& text) {
  bridge::set_user_metadata(text);
}
std::string HeadroomAllocator::getUserMetadata() { return bridge::user_metadata(); }

void HeadroomAllocator::attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) {
  bridge::add_out_of_memory_observer(
      [observer = std::move(observer)](
          int device, std::uint64_t asked, std::uint64_t total, std::uint64_t free) {
        observer(device, asked, total, free);
      });
}

void HeadroomAllocator::attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) {
  bridge::add_trace_tracker([tracker = std::move(tracker)](const bridge::TraceEntry& entry) {
    tracker(to_torch(entry));
  });
}

}  // namespace headroom_torch
