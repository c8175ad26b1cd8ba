#include "bindings/pytorch/bridge/history.h"

#include <algorithm>
#include <utility>

#include "bindings/pytorch/bridge/bridge.h"
#include "bindings/pytorch/bridge/convert.h"

namespace headroom::bridge {
namespace {

// What this thread says of the entries that it causes.
struct ThreadTexts {
  std::vector<SharedText> compile_contexts{};
  SharedText user_metadata{};
  const Context* free_context = nullptr;
};

ThreadTexts& texts() {
  thread_local ThreadTexts of_thread;  // NOLINT(readability-identifier-naming)
  return of_thread;
}

// In the ring, times are ticks.
std::int64_t now() noexcept { return static_cast<std::int64_t>(ticks()); }

}  // namespace

// --- The ring ------------------------------------------------------------------------------------

void TraceRing::set_capacity(std::uint64_t entries) {
  const std::uint64_t wanted = std::max<std::uint64_t>(entries, 1);
  if (wanted == capacity_) return;
  std::vector<TraceEntry> kept = all();
  clear();
  capacity_ = wanted;
  if (kept.size() > wanted) kept.erase(kept.begin(), kept.end() - static_cast<long>(wanted));
  for (TraceEntry& entry : kept) add(std::move(entry));
}

void TraceRing::add(TraceEntry entry) {
  if (size_ < capacity_) {
    if (size_ % kChunk == 0) {
      chunks_.push_back(std::make_unique<TraceEntry[]>(  // NOLINT(modernize-avoid-c-arrays)
          std::min(kChunk, capacity_ - size_)));
    }
    at(size_++) = std::move(entry);
    return;
  }
  at(next_) = std::move(entry);
  next_ = (next_ + 1) % capacity_;
}

void TraceRing::clear() noexcept {
  chunks_.clear();
  size_ = next_ = 0;
}

std::vector<TraceEntry> TraceRing::all() const {
  std::vector<TraceEntry> entries;
  entries.reserve(size_);
  for (std::uint64_t i = 0; i < size_; ++i) entries.push_back(at((next_ + i) % size_));
  return entries;
}

// --- One device's --------------------------------------------------------------------------------

void DeviceHistory::set(const HistorySettings& settings) {
  // Which blocks have contexts is the allocator's to say: it keeps them beside the blocks.
  const bool makes = settings.is_enabled && settings.keep != KeepContexts::kNever;
  allocator_.set_tag_maker(makes ? settings.make_context : nullptr);
  TraceRing old;  // what it holds is let go of without the lock
  std::unique_lock lock(mutex_);
  settings_ = settings;
  wants_free_contexts_.store(makes && settings.keep == KeepContexts::kAll,
                             std::memory_order_relaxed);
  skipped_ = actions_named(settings.skipped_actions);
  if (!settings.is_enabled || settings.clears) std::swap(ring_, old);
  ring_.set_capacity(settings.max_entries);
  const bool listens = settings_.is_enabled || !trackers_.empty();
  lock.unlock();  // events come with the allocator's lock held, and take this one then
  if (listens) {
    allocator_.add_sink(*this);
  } else {
    allocator_.remove_sink(*this);
  }
}

void DeviceHistory::add_tracker(Tracker tracker) {
  {
    const std::lock_guard lock(mutex_);
    trackers_.push_back(std::move(tracker));
  }
  allocator_.add_sink(*this);
}

Context DeviceHistory::make_context() const {
  std::function<Context()> make;
  {
    const std::lock_guard lock(mutex_);
    make = settings_.make_context;
  }
  return make ? make() : nullptr;
}

std::vector<TraceEntry> DeviceHistory::trace() const {
  const std::lock_guard lock(mutex_);
  std::vector<TraceEntry> entries = ring_.all();
  clock_.adjust();
  for (TraceEntry& entry : entries) {
    entry.time_us = clock_.time_us(static_cast<std::uint64_t>(entry.time_us));
  }
  return entries;
}

void DeviceHistory::record_snapshot(std::uint64_t active_bytes) {
  const std::lock_guard lock(mutex_);
  if (!settings_.is_enabled) return;
  ring_.add({.action = TraceAction::kSnapshot,
             .device = index_,
             .size_bytes = active_bytes,
             .time_us = now()});
}

// Requires mutex_.
void DeviceHistory::tell(TraceEntry entry) const {
  entry.time_us = clock_.time_us(static_cast<std::uint64_t>(entry.time_us));
  for (const Tracker& tracker : trackers_) tracker(entry);
}

void DeviceHistory::record(const memory::Event& event) noexcept {
  try {
    ThreadTexts& of_thread = texts();
    TraceEntry entry{.action = to_bridge(event.action),
                     .device = index_,
                     .address = event.address,
                     .size_bytes = event.size_bytes,
                     .stream = native_of(allocator_.device(), event.stream),
                     .pool = to_bridge(event.pool),
                     .time_us = now(),
                     .user_metadata = of_thread.user_metadata};
    if (!of_thread.compile_contexts.empty()) {
      entry.compile_context = of_thread.compile_contexts.back();
    }
    const std::lock_guard lock(mutex_);
    if (settings_.keep >= KeepContexts::kAlloc) {
      const bool is_free = event.action == memory::Action::kFreeRequested ||
                           event.action == memory::Action::kFreeCompleted;
      if (is_free && of_thread.free_context != nullptr) {
        entry.context = *of_thread.free_context;
      } else if (event.tag != nullptr) {
        entry.context = *event.tag;
      }
    }
    if (!trackers_.empty()) tell(entry);
    if (settings_.is_enabled && !skipped_.has(event.action)) ring_.add(std::move(entry));
  } catch (...) {  // Without host memory the history lacks this one.
    return;
  }
}

// --- Of a thread ---------------------------------------------------------------------------------

FreeContext::FreeContext(Context context) noexcept : context_(std::move(context)) {
  texts().free_context = &context_;
}

FreeContext::~FreeContext() { texts().free_context = nullptr; }

void push_compile_context(std::string text) {
  auto& all = texts().compile_contexts;
  all.push_back(std::make_shared<const std::string>(std::move(text)));
}

void pop_compile_context() {
  auto& all = texts().compile_contexts;
  if (!all.empty()) all.pop_back();
}

void set_user_metadata(std::string text) {
  texts().user_metadata =
      text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text));
}

std::string user_metadata() {
  const SharedText& text = texts().user_metadata;
  return text != nullptr ? *text : std::string();
}

}  // namespace headroom::bridge
