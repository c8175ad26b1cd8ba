#include "headroom/tensor/generator.h"

#include <map>
#include <memory>
#include <utility>

namespace headroom {
namespace {

// By id, not by object: a device made anew goes on where the last of that name was seeded.
struct Generators {
  std::mutex mutex;
  Generator::State first{.seed = 67280421310721ULL};
  std::map<std::pair<device::DeviceKind, int>, std::unique_ptr<Generator>> by_device;
};

// Never destroyed: tensors may be made until the very end of the process.
Generators& generators() {
  static auto* const instance = new Generators;
  return *instance;
}

}  // namespace

Generator::State Generator::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Generator::set_state(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

Generator::State Generator::take(std::uint64_t counters) {
  const std::lock_guard lock(mutex_);
  const State out = state_;
  state_.offset += counters;
  return out;
}

Generator& default_generator(const device::Device& device) {
  Generators& all = generators();
  const std::lock_guard lock(all.mutex);
  auto& found = all.by_device[{device.id().kind, device.id().index}];
  if (!found) {
    found = std::make_unique<Generator>();
    found->set_state(all.first);
  }
  return *found;
}

void manual_seed(std::uint64_t seed) {
  Generators& all = generators();
  const std::lock_guard lock(all.mutex);
  all.first = {.seed = seed};
  for (auto& entry : all.by_device) entry.second->seed(seed);
}

}  // namespace headroom
