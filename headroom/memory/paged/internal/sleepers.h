// The blocks of a PagedAllocator that sleep: what is needed to wake them as they were.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headroom/memory/annotation.h"
#include "headroom/memory/internal/host_copy.h"
#include "headroom/memory/paged/internal/paged_block.h"

namespace headroom::memory::internal {

struct Sleeper {
  PagedBlock* block = nullptr;
  HostCopy contents{};  // none where they were discarded
  Tag tag{};            // of the allocation
};

// By address. A node of the map moves from one to another without memory.
using SleeperMap = std::map<DeviceAddress, Sleeper>;

struct Sleepers {
  SleeperMap all{};
  // Host memory that may not go back yet: a capture was under way, or a copy may still run.
  std::vector<HostCopy> left_over{};
};

// Whether allocations were made in a scope; each path is looked at once.
class InScope {
 public:
  explicit InScope(std::string_view scope) : scope_(scope) {}

  [[nodiscard]] bool operator()(const AllocationContext& context) {
    const auto [known, is_new] = known_.try_emplace(context.annotation, false);
    if (is_new) known->second = AnnotationPath(context.annotation).is_inside(scope_);
    return known->second;
  }

 private:
  std::string scope_;
  std::unordered_map<AnnotationId, bool> known_{};
};

}  // namespace headroom::memory::internal
