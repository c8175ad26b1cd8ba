// Process: the devices that PyTorch has opened, and what it wants of all of them.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/memory/allocator.h"
#include "headroom/memory/out_of_memory.h"

#include "bindings/pytorch/bridge/bridge.h"
#include "bindings/pytorch/bridge/captures.h"
#include "bindings/pytorch/bridge/history.h"

namespace headroom::bridge {

class DeviceMemory::Impl {
 public:
  Impl(memory::Allocator& of, int number)
      : allocator(of), device(of.device()), index(number), captures(of), history(of, number) {}

  memory::Allocator& allocator;
  device::Device& device;
  const int index;
  CaptureWatch captures;
  DeviceHistory history;
};

// Never destroyed: memory may be freed until the very end of the process.
class Process {
 public:
  static constexpr int kMostDevices = 64;

  [[nodiscard]] static Process& instance();

  std::vector<std::string> configure(const Settings& settings);
  DeviceMemory& open(int index);
  [[nodiscard]] DeviceMemory* opened(int index) const noexcept {
    return index >= 0 && index < kMostDevices
               ? memories_[static_cast<std::size_t>(index)].load(std::memory_order_acquire)
               : nullptr;
  }
  [[nodiscard]] int opened_count() const noexcept { return count_.load(std::memory_order_acquire); }

  void set_history(HistorySettings settings);
  [[nodiscard]] bool is_history_enabled() const noexcept {
    return has_history_.load(std::memory_order_relaxed);
  }
  void add_tracker(Tracker tracker);
  void add_observer(OutOfMemoryObserver observer);
  void add_free_callback(std::function<bool()> callback);

  template <class Function>
  void for_each(Function&& function) const {
    for (int i = 0; i < opened_count(); ++i) {
      if (DeviceMemory* const memory = opened(i)) function(*memory);
    }
  }
  [[nodiscard]] static DeviceMemory::Impl& impl_of(DeviceMemory& memory) noexcept {
    return *memory.impl_;
  }

 private:
  Process() = default;
  void equip(DeviceMemory::Impl& impl);  // requires mutex_

  ForkSafeMutex mutex_{ForkSafeMutex::Rank::kHandles};
  Settings settings_{};
  bool has_begun_ = false;
  HistorySettings history_{};
  std::atomic<bool> has_history_{false};
  std::vector<Tracker> trackers_{};
  std::vector<OutOfMemoryObserver> observers_{};
  std::vector<std::function<bool()>> free_callbacks_{};
  std::array<std::atomic<DeviceMemory*>, kMostDevices> memories_{};
  std::atomic<int> count_{0};
};

// In recordings.cpp: begins the recording that waits for the device, if one does.
void attach_recording(int index, memory::Allocator& allocator) noexcept;

}  // namespace headroom::bridge
