#include "headroom/device/registry.h"

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/env.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cuda/cuda_device.h"

namespace headroom::device {
namespace {

constexpr const char* kDevicesVariable = "HEADROOM_CPU_DEVICES";
constexpr const char* kCapacityVariable = "HEADROOM_CPU_CAPACITY";
constexpr int kMaxCpuDevices = 64;

std::string in_words(int count) {
  constexpr std::array<const char*, 13> kWords{"no",
                                               "one",
                                               "two",
                                               "three",
                                               "four",
                                               "five",
                                               "six",
                                               "seven",
                                               "eight",
                                               "nine",
                                               "ten",
                                               "eleven",
                                               "twelve"};
  const auto at = static_cast<std::size_t>(count);
  return at < kWords.size() ? kWords[at] : std::to_string(count);
}

// `cpu:0`, `cpu:0 and cpu:1`, `cpu:0, cpu:1 and cpu:4`.
std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " and " : ", ";
    out += names[i];
  }
  return out;
}

template <class T>
T value_or_throw(Result<T, std::string> result) {
  if (!result) throw InvalidArgument(result.error());
  return *std::move(result);
}

}  // namespace

std::unique_ptr<Registry> Registry::from_environment() {
  const int count =
      static_cast<int>(value_or_throw(env_int(kDevicesVariable, 1, kMaxCpuDevices)).value_or(1));
  const std::optional<std::uint64_t> capacity = value_or_throw(env_bytes(kCapacityVariable));
  auto made = std::make_unique<Registry>();
  for (int index = 0; index < count; ++index) {
    CpuOptions options{.index = index, .capacity_bytes = capacity};
    if (!capacity) {
      const auto share = CpuDevice::machine_memory_bytes() / 2 / static_cast<std::uint64_t>(count);
      options.capacity_bytes = share - share % options.granularity_bytes;
    }
    try {
      made->add(CpuDevice::create(options));
    } catch (const InvalidArgument& error) {
      if (!capacity) throw;
      throw InvalidArgument(std::string(kCapacityVariable) + ": " + error.what());
    }
  }
  for (int index = 0; index < CudaDevice::count(); ++index) {
    // A card that cannot be described is left out, so that the others can be used.
    if (auto device = CudaDevice::create({.index = index})) made->add(*std::move(device));
  }
  return made;
}

Device& Registry::add(std::unique_ptr<Device> device) {
  const std::scoped_lock lock(mutex_);
  for (const auto& known : devices_) {
    if (known->id() == device->id()) {
      throw InvalidArgument(to_string(device->id()) + " exists already; give it another index");
    }
  }
  devices_.push_back(std::move(device));
  return *devices_.back();
}

int Registry::count(DeviceKind kind) const {
  const std::scoped_lock lock(mutex_);
  int found = 0;
  for (const auto& device : devices_) found += device->id().kind == kind ? 1 : 0;
  return found;
}

std::vector<Device*> Registry::devices() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Device*> all;
  all.reserve(devices_.size());
  for (const auto& device : devices_) all.push_back(device.get());
  return all;
}

Result<Device*, std::string> Registry::find(DeviceId id) const {
  std::vector<std::string> others;
  for (Device* device : devices()) {
    if (device->id() == id) return device;
    if (device->id().kind == id.kind) others.push_back(to_string(device->id()));
  }
  const std::string name = to_string(id);
  if (others.empty()) return Unexpected(name + " does not exist: " + why_none(id.kind));

  const std::string kind(to_string(id.kind));
  const int count = static_cast<int>(others.size());
  std::string message = name + " does not exist: there " + (count == 1 ? "is " : "are ") +
                        in_words(count) + " " + kind + (count == 1 ? " device, " : " devices, ") +
                        join(others);
  if (id.kind == DeviceKind::kCpu && id.index >= 0) {
    message += std::string("; ") + kDevicesVariable;
    if (id.index < kMaxCpuDevices) {
      message += "=" + std::to_string(id.index + 1) + " makes " + in_words(id.index + 1);
    } else {
      message += " makes up to " + std::to_string(kMaxCpuDevices);
    }
  }
  return Unexpected(std::move(message));
}

Result<Device*, std::string> Registry::find(std::string_view name) const {
  const auto id = parse_device_id(name);
  if (!id) return Unexpected(id.error());
  return find(*id);
}

std::string Registry::why_none(DeviceKind kind) const {
  if (count(kind) > 0) return "";
  switch (kind) {
    case DeviceKind::kCpu:
      return "no cpu device was added to this registry";
    case DeviceKind::kMeta:
      return "meta devices are made where they are needed, with MetaDevice::create";
    case DeviceKind::kCuda:
      return CudaDevice::count() == 0 ? CudaDevice::why_none()
                                      : "no cuda device was added to this registry";
  }
  return "unknown kind of device";
}

namespace {

constinit std::atomic<Registry*> kept{nullptr};

// While it is made. A fork waits for that: a child would wait for the thread that makes it for
// ever.
ForkSafeMutex& registry_mutex() {
  static auto& instance = *new ForkSafeMutex(ForkSafeMutex::Rank::kDevices);
  return instance;
}
[[maybe_unused]] const ForkSafeMutex& made_registry_mutex = registry_mutex();

}  // namespace

Registry& registry() {
  if (Registry* const made = kept.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(registry_mutex());
  if (Registry* const made = kept.load(std::memory_order_acquire)) return *made;
  // Leaked: see the header. An exception leaves it unmade, and the next call tries again.
  kept.store(Registry::from_environment().release(), std::memory_order_release);
  return *kept;
}

}  // namespace headroom::device
