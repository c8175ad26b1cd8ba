#include "bindings/pytorch/bridge/process.h"

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/device/types.h"
#include "headroom/memory/api.h"

#include "bindings/pytorch/bridge/convert.h"

namespace headroom::bridge {

Process& Process::instance() {
  static Process& process = *new Process;
  return process;
}

namespace {

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const Process& made_process = Process::instance();

void observe(memory::Allocator& allocator, int index, const OutOfMemoryObserver& observer) {
  (void)allocator.add_out_of_memory_callback(
      [observer, index](const memory::OutOfMemoryReport& report) {
        const memory::Account& account = report.account;
        observer(index,
                 account.segment_asked_bytes,
                 account.limit_bytes.value_or(account.total_bytes),
                 account.free_bytes);
      });
}

}  // namespace

std::vector<std::string> Process::configure(const Settings& settings) {
  const std::lock_guard lock(mutex_);
  if (has_begun_) throw Error("the allocator is in use already, and keeps its settings");
  std::vector<std::string> ignored;
  try {
    ignored = ignore_pytorch_variables();
  } catch (const Error&) {  // Somebody uses headroom's own allocators already: theirs are as they
    ignored = {};           // are.
  }
  if (!settings.configuration.empty()) set_allocator_settings(settings.configuration);
  settings_ = settings;
  return ignored;
}

DeviceMemory& Process::open(int index) {
  if (DeviceMemory* const known = opened(index)) return *known;
  if (index < 0 || index >= kMostDevices) {
    throw InvalidArgument("headroom: device " + std::to_string(index) + " is not one of the " +
                          std::to_string(kMostDevices) + " that it can serve");
  }
  const std::lock_guard lock(mutex_);
  if (DeviceMemory* const known = opened(index)) return *known;
  has_begun_ = true;
  memory::Allocator& allocator =
      headroom::allocator(settings_.device_kind + ":" + std::to_string(index));
  if (settings_.limit_bytes) allocator.set_limit(settings_.limit_bytes);
  auto impl = std::make_unique<DeviceMemory::Impl>(allocator, index);
  equip(*impl);
  auto* const made = new DeviceMemory(std::move(impl));
  attach_recording(index, allocator);  // before anybody else takes memory there
  memories_[static_cast<std::size_t>(index)].store(made, std::memory_order_release);
  count_.store(std::max(count_.load(), index + 1), std::memory_order_release);
  attach_recording(index, allocator);  // one that began before others could see the device
  return *made;
}

void Process::equip(DeviceMemory::Impl& impl) {
  if (history_.is_enabled) impl.history.set(history_);
  for (const Tracker& tracker : trackers_) impl.history.add_tracker(tracker);
  for (const auto& observer : observers_) observe(impl.allocator, impl.index, observer);
  for (const auto& callback : free_callbacks_) (void)impl.allocator.add_free_callback(callback);
}

void Process::set_history(HistorySettings settings) {
  const std::lock_guard lock(mutex_);
  history_ = std::move(settings);
  has_history_.store(history_.is_enabled, std::memory_order_relaxed);
  for_each([&](DeviceMemory& memory) { impl_of(memory).history.set(history_); });
}

void Process::add_tracker(Tracker tracker) {
  const std::lock_guard lock(mutex_);
  for_each([&](DeviceMemory& memory) { impl_of(memory).history.add_tracker(tracker); });
  trackers_.push_back(std::move(tracker));
}

void Process::add_observer(OutOfMemoryObserver observer) {
  const std::lock_guard lock(mutex_);
  for_each([&](DeviceMemory& memory) {
    observe(impl_of(memory).allocator, impl_of(memory).index, observer);
  });
  observers_.push_back(std::move(observer));
}

void Process::add_free_callback(std::function<bool()> callback) {
  const std::lock_guard lock(mutex_);
  for_each(
      [&](DeviceMemory& memory) { (void)impl_of(memory).allocator.add_free_callback(callback); });
  free_callbacks_.push_back(std::move(callback));
}

// --- The interface -------------------------------------------------------------------------------

std::vector<std::string> configure(const Settings& settings) {
  return Process::instance().configure(settings);
}

DeviceMemory& device_memory(int device) { return Process::instance().open(device); }
DeviceMemory* opened_memory(int device) noexcept { return Process::instance().opened(device); }
int opened_count() noexcept { return Process::instance().opened_count(); }

bool free_block(void* block) noexcept {
  const Process& process = Process::instance();
  const int count = process.opened_count();
  for (int i = 0; i < count; ++i) {
    DeviceMemory* const memory = process.opened(i);
    if (memory != nullptr && memory->free(block)) return true;
  }
  return false;
}

std::uint64_t empty_caches(PoolKey pool) noexcept {
  std::uint64_t bytes = 0;
  Process::instance().for_each([&](DeviceMemory& memory) { bytes += memory.empty_cache(pool); });
  return bytes;
}

void set_history(HistorySettings settings) { Process::instance().set_history(std::move(settings)); }
bool is_history_enabled() noexcept { return Process::instance().is_history_enabled(); }
void add_trace_tracker(std::function<void(const TraceEntry&)> tracker) {
  Process::instance().add_tracker(std::move(tracker));
}
void add_out_of_memory_observer(OutOfMemoryObserver observer) {
  Process::instance().add_observer(std::move(observer));
}
void add_free_callback(std::function<bool()> callback) {
  Process::instance().add_free_callback(std::move(callback));
}

}  // namespace headroom::bridge
