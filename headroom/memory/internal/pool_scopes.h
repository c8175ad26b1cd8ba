// The private pools of an allocator, and the scopes in which allocations go to them: the same for
// every core. Every function requires the allocator's lock.
//
//   scopes.begin_scope(id, [](StreamId stream) { return stream == capturing; });
//   Pool* pool = scopes.private_pool_for(stream);
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/memory/allocator.h"

namespace headroom::memory::internal {

struct PoolScope {
  PoolId id{};
  StreamFilter filter{};
};

// Pool is made from its id, and has `use_count`: scopes and graphs that still need it.
template <class Pool>
struct PoolScopes {
  std::map<PoolId, std::unique_ptr<Pool>> private_pools{};
  std::vector<PoolScope> scopes{};

  // Where allocations on the stream go: the newest scope that wants them, or none.
  [[nodiscard]] Pool* private_pool_for(StreamId stream) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      if (scope->filter(stream)) return private_pools.at(scope->id).get();
    }
    return nullptr;
  }

  [[nodiscard]] bool is_open(PoolId id) const noexcept {
    return std::ranges::any_of(scopes, [id](const PoolScope& scope) { return scope.id == id; });
  }

  void begin_scope(PoolId id, StreamFilter filter) {
    if (is_open(id)) {
      throw InvalidArgument("begin_allocate_to_pool: the pool is open already; end it first");
    }
    const auto found = private_pools.find(id);
    if (found != private_pools.end() && found->second->use_count == 0) {
      throw InvalidArgument(
          "begin_allocate_to_pool: the pool was released; new_pool_id() makes another");
    }
    scopes.reserve(scopes.size() + 1);
    if (found == private_pools.end()) {
      private_pools.emplace(id, std::make_unique<Pool>(id));
    } else {
      ++found->second->use_count;
    }
    scopes.push_back({.id = id, .filter = std::move(filter)});
  }

  void end_scope(PoolId id) {
    if (std::erase_if(scopes, [id](const PoolScope& scope) { return scope.id == id; }) == 0) {
      throw InvalidArgument("end_allocate_to_pool: the pool is not open");
    }
  }

  void release_scope(PoolId id) {
    const auto found = private_pools.find(id);
    if (found == private_pools.end() || found->second->use_count == 0) {
      throw InvalidArgument("release_pool: there is no such pool, or it was released before");
    }
    --found->second->use_count;
  }
};

}  // namespace headroom::memory::internal
