// The devices of this process: which exist, and how to get one by name.
//
//   Device* device = registry().find("cpu:1").value();
//
// Made on the first call of registry(), never before main on its own, and never destroyed, so a
// tensor in a static variable may still free its memory while the program ends.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/fork.h"
#include "headroom/device/device.h"

namespace headroom::device {

// Thread-safe. Devices are added, never taken away.
class Registry {
 public:
  // The cpu devices that HEADROOM_CPU_DEVICES (default 1) and HEADROOM_CPU_CAPACITY (of each;
  // default: half of the machine's memory, divided among them) ask for, and the GPUs there are,
  // of which no memory is taken yet.
  // Throws InvalidArgument when a variable holds garbage; the message names it.
  [[nodiscard]] static std::unique_ptr<Registry> from_environment();

  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Takes a device in, under the id it has. Throws InvalidArgument when the id is taken.
  Device& add(std::unique_ptr<Device> device);

  [[nodiscard]] int count(DeviceKind kind) const;
  [[nodiscard]] std::vector<Device*> devices() const;
  // The error says which devices there are.
  [[nodiscard]] Result<Device*, std::string> find(DeviceId id) const;
  [[nodiscard]] Result<Device*, std::string> find(std::string_view name) const;
  // Why there is no device of this kind, in one line; empty when there is one.
  [[nodiscard]] std::string why_none(DeviceKind kind) const;

 private:
  // Outlives the registry: forks know it for ever.
  ForkSafeMutex& mutex_ = *new ForkSafeMutex(ForkSafeMutex::Rank::kTable);
  std::vector<std::unique_ptr<Device>> devices_;  // requires mutex_
};

// The process's own, from the environment. Throws as from_environment does, on every call until
// it succeeds.
[[nodiscard]] Registry& registry();

}  // namespace headroom::device
