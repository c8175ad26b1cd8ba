#include "headroom/memory/api.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/device/registry.h"
#include "headroom/memory/allocator_choice.h"

namespace headroom {
namespace {

using device::Device;
using device::DeviceId;
using device::DeviceKind;
using memory::Allocator;
using memory::AllocatorChoice;
using memory::PyTorchVariables;

// The allocators of this process, one per device that was asked for.
class Allocators {
 public:
  Allocator& allocator_of(Device& device) {
    const std::lock_guard lock(mutex_);
    if (Allocator* known = find(device)) return *known;
    if (!choice_) choice_ = read_environment();
    allocators_.push_back(memory::make_allocator(device, *choice_));
    if (observer_) observer_(*allocators_.back());
    return *allocators_.back();
  }

  Allocator* existing(Device& device) {
    const std::lock_guard lock(mutex_);
    return find(device);
  }

  Allocator* having(memory::DeviceAddress address) {
    for (Allocator* allocator : all()) {
      if (allocator->device().owns_range(address, 1)) return allocator;
    }
    return nullptr;
  }

  void observe(std::function<void(memory::Allocator&)> observer) {
    const std::lock_guard lock(mutex_);
    observer_ = std::move(observer);
    if (!observer_) return;
    for (const auto& allocator : allocators_) observer_(*allocator);
  }

  void ignore_pytorch_variables() {
    const std::lock_guard lock(mutex_);
    if (variables_ == PyTorchVariables::kIgnore) return;
    if (choice_) {
      throw Error("ignore_pytorch_variables: an allocator has read the environment before");
    }
    variables_ = PyTorchVariables::kIgnore;
  }

  void empty_caches() {
    for (Allocator* allocator : all()) allocator->empty_cache();
  }

  void configure(std::string_view settings) {
    const std::lock_guard lock(mutex_);
    if (!choice_) choice_ = read_environment();
    // A setting that the text does not name keeps its value, and so does a backend that was chosen.
    auto parsed = memory::parse_choice(settings, *choice_);
    if (!parsed) throw InvalidArgument("set_allocator_settings: " + parsed.error());
    if (!allocators_.empty()) check_change(*choice_, *parsed);
    choice_ = std::move(*parsed);
    for (const auto& allocator : allocators_) {
      const bool is_chosen = allocator->settings().paged.has_value() == choice_->paged.has_value();
      if (is_chosen) allocator->configure(*choice_);
    }
  }

 private:
  [[nodiscard]] AllocatorChoice read_environment() const {
    auto choice = memory::choice_from_environment(variables_);
    if (!choice) throw InvalidArgument(choice.error());
    for (const std::string& warning : choice->warnings) {
      std::fprintf(stderr, "headroom: %s\n", warning.c_str());
    }
    return std::move(*choice);
  }

  static void check_change(const AllocatorChoice& now, const AllocatorChoice& wanted) {
    if (now.paged.has_value() != wanted.paged.has_value()) {
      throw InvalidArgument(
          std::string("set_allocator_settings: these are settings of ") +
          (wanted.paged ? "the paged allocator" : "PyTorch's allocator") +
          ", and the backend is chosen before the first allocation, or with HEADROOM_ALLOC_CONF=" +
          (wanted.paged ? "backend:paged" : "backend:native"));
    }
    if (now.paged && *now.paged != *wanted.paged) {
      throw InvalidArgument(
          "set_allocator_settings: a paged allocator keeps the settings it was made with; set "
          "them before the first allocation");
    }
  }

  [[nodiscard]] Allocator* find(const Device& device) const {
    for (const auto& allocator : allocators_) {
      if (&allocator->device() == &device) return allocator.get();
    }
    return nullptr;
  }

  std::vector<Allocator*> all() {
    const std::lock_guard lock(mutex_);
    std::vector<Allocator*> out;
    for (const auto& allocator : allocators_) out.push_back(allocator.get());
    return out;
  }

  ForkSafeMutex mutex_{ForkSafeMutex::Rank::kAllocators};
  PyTorchVariables variables_ = PyTorchVariables::kRead;
  std::optional<AllocatorChoice> choice_;
  // All of the kind of choice_, but for devices that have no pages.
  std::vector<std::unique_ptr<Allocator>> allocators_;
  std::function<void(memory::Allocator&)> observer_;
};

// Never destroyed: memory may be freed until the very end of the process.
Allocators& allocators() {
  static Allocators& instance = *new Allocators;
  return instance;
}

// Before there are threads: see annotation.cpp.
[[maybe_unused]] const Allocators& made_allocators = allocators();

thread_local std::optional<DeviceId> current;

DeviceId first_device() {
  const bool has_gpu = device::registry().count(DeviceKind::kCuda) > 0;
  return {.kind = has_gpu ? DeviceKind::kCuda : DeviceKind::kCpu, .index = 0};
}

memory::Statistics statistics_of(WhichDevice which) {
  const Allocator* known = allocators().existing(which.resolve());
  return known == nullptr ? memory::Statistics{} : known->statistics();
}

std::uint64_t bytes(std::int64_t value) { return static_cast<std::uint64_t>(value); }

}  // namespace

WhichDevice::WhichDevice(const char* name) : by_(By::kId) {
  if (name == nullptr) {
    throw InvalidArgument(
        "a null pointer names no device; write 'cpu', or no argument for the current one");
  }
  const auto parsed = device::parse_device_id(name);
  if (!parsed) throw InvalidArgument(parsed.error());
  id_ = *parsed;
}

Device& WhichDevice::resolve() const {
  DeviceId id = id_;
  if (by_ != By::kId) id = current_device();
  if (by_ == By::kIndex) id.index = index_;
  const auto found = device::registry().find(id);
  if (!found) throw InvalidArgument(found.error());
  return **found;
}

int device_count() { return device::registry().count(current_device().kind); }

void set_device(WhichDevice which) { current = which.resolve().id(); }

DeviceId current_device() {
  if (!current) current = first_device();
  return *current;
}

memory::Allocator& allocator(WhichDevice which) {
  return allocators().allocator_of(which.resolve());
}

memory::Allocator* find_allocator(memory::DeviceAddress address) {
  return allocators().having(address);
}

std::vector<std::string> ignore_pytorch_variables() {
  allocators().ignore_pytorch_variables();
  return memory::pytorch_variables_in_environment();
}

void set_allocator_observer(std::function<void(memory::Allocator&)> observer) {
  allocators().observe(std::move(observer));
}

std::uint64_t memory_allocated(WhichDevice which) {
  return bytes(statistics_of(which).allocated_bytes.all.current);
}

std::uint64_t max_memory_allocated(WhichDevice which) {
  return bytes(statistics_of(which).allocated_bytes.all.peak);
}

std::uint64_t memory_reserved(WhichDevice which) {
  return bytes(statistics_of(which).reserved_bytes.all.current);
}

std::uint64_t max_memory_reserved(WhichDevice which) {
  return bytes(statistics_of(which).reserved_bytes.all.peak);
}

void reset_peak_memory_stats(WhichDevice which) { allocator(which).reset_peak_statistics(); }

void reset_accumulated_memory_stats(WhichDevice which) {
  allocator(which).reset_accumulated_statistics();
}

std::map<std::string, std::int64_t> memory_stats(WhichDevice which) {
  const Allocator* known = allocators().existing(which.resolve());
  if (known == nullptr) return {};
  return memory::flatten(known->statistics());
}

std::string memory_summary(WhichDevice which, bool abbreviated) {
  return memory::memory_summary(statistics_of(which), which.resolve().id().index, abbreviated);
}

memory::Account memory_account(WhichDevice which) {
  Device& device = which.resolve();
  if (const Allocator* known = allocators().existing(device)) return known->account();
  const auto processes = device.processes();
  return memory::with_device_lines({.device = device.id()},
                                   mem_get_info(device.id()),
                                   processes ? *processes : std::vector<device::ProcessMemory>{});
}

void empty_cache() { allocators().empty_caches(); }

void set_per_process_memory_fraction(double fraction, WhichDevice which) {
  allocator(which).set_memory_fraction(fraction);
}

double get_per_process_memory_fraction(WhichDevice which) {
  return allocator(which).memory_fraction();
}

void set_allocator_settings(std::string_view settings) { allocators().configure(settings); }

void set_allocator_settings(const char* settings) {
  if (settings == nullptr) {
    throw InvalidArgument(
        "set_allocator_settings: a null pointer holds no settings; write them as in "
        "'backend:native', or an empty text for none");
  }
  set_allocator_settings(std::string_view(settings));
}

device::MemoryInfo mem_get_info(WhichDevice which) {
  const auto info = which.resolve().memory_info();
  if (!info) throw Error(to_string(info.error()));
  return *info;
}

}  // namespace headroom
