// The blocks of a PagedAllocator that sleep: what is needed to wake them as they were.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/internal/host_copy.h"
#include "headroom/memory/internal/slab_sleep.h"
#include "headroom/memory/paged/internal/paged_block.h"

namespace headroom::memory::internal {

struct Sleeper {
  PagedBlock* block = nullptr;
  HostCopy contents{};    // from its address on; none where they were discarded
  Tag tag{};              // of the allocation
  SleepingSlabs slabs{};  // where the block is a page that small ones are in

  [[nodiscard]] bool is_of_slabs() const noexcept { return slabs.page != nullptr; }
  [[nodiscard]] std::size_t count() const noexcept { return is_of_slabs() ? slabs.held.size() : 1; }
  [[nodiscard]] std::uint64_t block_bytes() const noexcept {
    return is_of_slabs() ? slabs.held_bytes() : block->size;
  }
  // Calls function(address, size_bytes, requested_bytes) for every block of the user's.
  template <class Function>
  void for_each_block(Function&& function) const {
    if (!is_of_slabs()) return function(block->address, block->size, block->requested);
    for (const SleepingSlot& slot : slabs.held) {
      function(slot.block.address, slot.block.size_bytes, slot.block.requested_bytes);
    }
  }
};

// By address. A node of the map moves from one to another without memory.
using SleeperMap = std::map<DeviceAddress, Sleeper>;

struct Sleepers {
  SleeperMap all{};
  // Host memory that may not go back yet: a capture was under way, or a copy may still run.
  std::vector<HostCopy> left_over{};

  [[nodiscard]] std::vector<Sleeper*> pointers() {
    std::vector<Sleeper*> out;
    out.reserve(all.size());
    for (auto& [address, sleeper] : all) out.push_back(&sleeper);
    return out;
  }
};

// Everything that reads and writes the blocks has been waited for, so the copies may run on any
// stream. They are over when this returns, unless the device failed.
template <class Copy>
[[nodiscard]] device::DeviceResult<void> copy_each(device::Device& device,
                                                   const std::vector<Sleeper*>& sleepers,
                                                   Copy&& copy) {
  const auto is_kept = [](const Sleeper* sleeper) { return sleeper->contents.data() != nullptr; };
  if (std::ranges::none_of(sleepers, is_kept)) return {};
  device::DeviceResult<void> done;
  for (const Sleeper* sleeper : sleepers) {
    if (!is_kept(sleeper)) continue;
    auto* const host = static_cast<std::byte*>(sleeper->contents.data());
    sleeper->for_each_block(
        [&](DeviceAddress address, std::uint64_t /*size*/, std::uint64_t requested) {
          if (done) done = copy(host + (address - sleeper->block->address), address, requested);
        });
  }
  const auto waited = device.synchronize_stream(StreamId::kDefault);
  return done ? waited : done;
}

// Whether allocations were made in a scope; each path is looked at once.
class InScope {
 public:
  explicit InScope(std::string_view scope) : scope_(scope) {}

  [[nodiscard]] bool operator()(const AllocationContext& context) {
    const auto [known, is_new] = known_.try_emplace(context.annotation, false);
    if (is_new) known->second = AnnotationPath(context.annotation).is_inside(scope_);
    return known->second;
  }

  // Small blocks wake with those that share their page.
  [[nodiscard]] bool operator()(const Sleeper& sleeper) {
    if (!sleeper.is_of_slabs()) return (*this)(sleeper.block->context);
    return std::ranges::any_of(sleeper.slabs.held, [this](const SleepingSlot& slot) {
      return (*this)(slot.block.context);
    });
  }

 private:
  std::string scope_;
  std::unordered_map<AnnotationId, bool> known_{};
};

}  // namespace headroom::memory::internal
