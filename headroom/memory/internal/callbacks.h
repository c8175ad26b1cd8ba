// Whom an allocator asks for memory, and whom it tells when there is none.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "headroom/memory/allocator.h"

namespace headroom::memory::internal {

// Shared, so that what they hold is neither copied nor destroyed under the lock: it may be memory
// of this allocator.
struct Callbacks {
  template <class Function>
  using List = std::vector<std::pair<Allocator::CallbackId, std::shared_ptr<const Function>>>;

  // Takes it out of the list, to be let go of without the lock.
  template <class Function>
  static std::shared_ptr<const Function> take(List<Function>& list,
                                              Allocator::CallbackId id) noexcept {
    const auto found =
        std::ranges::find_if(list, [id](const auto& entry) { return entry.first == id; });
    if (found == list.end()) return nullptr;
    auto taken = std::move(found->second);
    list.erase(found);
    return taken;
  }

  Allocator::CallbackId next = 1;
  List<std::function<bool()>> on_free;
  List<std::function<void(const OutOfMemoryReport&)>> on_oom;
};

}  // namespace headroom::memory::internal
