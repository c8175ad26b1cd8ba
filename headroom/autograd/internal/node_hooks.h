// The hooks of a node. Its own lock: they may be added while another thread runs a graph that ends
// in the same leaf.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "headroom/autograd/hooks.h"

namespace headroom::autograd::internal {

struct NodeHooks : std::enable_shared_from_this<NodeHooks> {
  template <class Hook>
  using List = std::vector<std::pair<std::uint64_t, Hook>>;

  std::mutex mutex{};
  std::uint64_t next_id = 1;
  List<GradientHook> pre{};
  List<PostHook> post{};
  List<AccumulateHook> accumulated{};

  template <class Hook>
  HookHandle add(List<Hook> NodeHooks::*list, Hook hook) {
    const std::lock_guard lock(mutex);
    HookHandle handle;
    handle.hooks_ = weak_from_this();
    handle.id_ = next_id++;
    (this->*list).emplace_back(handle.id_, std::move(hook));
    return handle;
  }
  // A copy, to be run without the lock.
  template <class Hook>
  [[nodiscard]] List<Hook> list(List<Hook> NodeHooks::*list) {
    const std::lock_guard lock(mutex);
    return this->*list;
  }
  void remove(std::uint64_t id);
};

}  // namespace headroom::autograd::internal
