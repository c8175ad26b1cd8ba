#include "headroom/tensor/generator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "headroom/base/fork.h"

namespace headroom {
namespace {

// By id, not by object: a device made anew goes on where the last of that name was seeded.
struct Generators {
  ForkSafeMutex mutex{ForkSafeMutex::Rank::kTable};
  Generator::State first{.seed = 67280421310721ULL};
  std::map<std::pair<device::DeviceKind, int>, std::unique_ptr<Generator>> by_device;
};

// Never destroyed: tensors may be made until the very end of the process.
Generators& generators() {
  static auto* const instance = new Generators;
  return *instance;
}

// Before there are threads, so that no child is forked while one of them makes it.
[[maybe_unused]] const Generators& made_generators = generators();

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

GeneratorStates GeneratorStates::capture() {
  Generators& all = generators();
  const std::lock_guard lock(all.mutex);
  GeneratorStates out;
  out.first_ = all.first;
  for (const auto& entry : all.by_device) {
    out.states_.emplace_back(entry.second.get(), entry.second->state());
  }
  return out;
}

void GeneratorStates::restore() const {
  Generators& all = generators();
  const std::lock_guard lock(all.mutex);
  all.first = first_;
  for (const auto& entry : all.by_device) {
    const auto is_it = [&](const auto& known) { return known.first == entry.second.get(); };
    const auto found = std::find_if(states_.begin(), states_.end(), is_it);
    entry.second->set_state(found != states_.end() ? found->second : first_);
  }
}

}  // namespace headroom
