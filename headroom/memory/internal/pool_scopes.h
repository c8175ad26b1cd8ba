// The private pools of an allocator, and the scopes in which allocations go to them: the same for
// every core. Every function requires the allocator's lock.
//
//   scopes.begin_scope(id, [](StreamId stream) { return stream == capturing; });
//   Pool* pool = scopes.private_pool_for(stream, lock);
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/mutex.h"
#include "headroom/memory/allocator.h"

namespace headroom::memory::internal {

struct PoolScope {
  PoolId id{};
  StreamFilter filter{};  // none: every stream
};

// Leaves an allocation whose pool cannot be known.
struct FilterThrew {};

// This thread is asking an allocator's filters: what they allocate there asks no filter again.
class FilterCall {
 public:
  explicit FilterCall(const void* allocator) noexcept
      : allocator_(allocator), outer_(std::exchange(current(), this)) {}
  ~FilterCall() { current() = outer_; }
  FilterCall(const FilterCall&) = delete;
  FilterCall& operator=(const FilterCall&) = delete;

  [[nodiscard]] static bool is_inside(const void* allocator) noexcept {
    for (const FilterCall* call = current(); call != nullptr; call = call->outer_) {
      if (call->allocator_ == allocator) return true;
    }
    return false;
  }

 private:
  static FilterCall*& current() noexcept {
    thread_local FilterCall* call = nullptr;  // NOLINT(readability-identifier-naming)
    return call;
  }

  const void* allocator_;
  FilterCall* outer_;
};

// The base of every core's private pool.
struct PoolUse {
  explicit PoolUse(PoolId pool_id) noexcept : id(pool_id) {}

  PoolId id;
  int use_count = 1;  // scopes and graphs that still need it; at 0 its cached memory may go
  bool never_splits = false;
  bool serves_failures = false;  // of requests for the default pool
};

// Pool is made from its id, and is a PoolUse.
template <class Pool>
struct PoolScopes {
  std::map<PoolId, std::unique_ptr<Pool>> private_pools{};
  std::vector<std::shared_ptr<const PoolScope>> scopes{};

  // Where allocations on the stream go: the newest scope that wants them, or none. Filters are
  // asked with the lock open, since they may call the allocator; what the caller has looked at
  // before may have changed. Throws FilterThrew.
  [[nodiscard]] Pool* private_pool_for(StreamId stream, std::unique_lock<Mutex>& lock) const {
    while (!scopes.empty() && !FilterCall::is_inside(this)) {
      const PoolScope& newest = *scopes.back();
      if (!newest.filter) return private_pools.at(newest.id).get();
      const std::optional<PoolId> wanted = ask_filters(stream, lock);
      if (!wanted) return nullptr;
      if (is_open(*wanted)) return private_pools.at(*wanted).get();
      // It was ended meanwhile, and an older scope may want the stream.
    }
    return nullptr;
  }

  [[nodiscard]] Pool* find_private_pool(PoolId id) const noexcept {
    const auto found = private_pools.find(id);
    return found != private_pools.end() ? found->second.get() : nullptr;
  }
  void make_private_pool(PoolId id) { private_pools.emplace(id, std::make_unique<Pool>(id)); }

  [[nodiscard]] bool is_open(PoolId id) const noexcept {
    return std::ranges::any_of(scopes, [id](const auto& scope) { return scope->id == id; });
  }

  void begin_scope(PoolId id, StreamFilter&& filter) {
    if (is_open(id)) {
      throw InvalidArgument("begin_allocate_to_pool: the pool is open already; end it first");
    }
    const auto found = private_pools.find(id);
    if (found != private_pools.end() && found->second->use_count == 0) {
      throw InvalidArgument(
          "begin_allocate_to_pool: the pool was released; new_pool_id() makes another");
    }
    scopes.reserve(scopes.size() + 1);
    auto scope = std::make_shared<PoolScope>();
    if (found == private_pools.end()) {
      make_private_pool(id);
    } else {
      ++found->second->use_count;
    }
    scope->id = id;
    scope->filter = std::move(filter);
    scopes.push_back(std::move(scope));
  }

  // To be let go of without the lock: what a filter holds may be memory of the allocator.
  [[nodiscard]] std::shared_ptr<const PoolScope> end_scope(PoolId id) {
    const auto found =
        std::ranges::find_if(scopes, [id](const auto& scope) { return scope->id == id; });
    if (found == scopes.end()) {
      throw InvalidArgument("end_allocate_to_pool: the pool is not open");
    }
    auto ended = std::move(*found);
    scopes.erase(found);
    return ended;
  }

 private:
  // The newest scope whose filter accepts the stream. The list is a copy, gone before the lock is
  // taken again: it may be the last to hold a filter.
  [[nodiscard]] std::optional<PoolId> ask_filters(StreamId stream,
                                                  std::unique_lock<Mutex>& lock) const {
    auto asked = scopes;
    lock.unlock();
    std::optional<PoolId> wanted;
    try {
      const FilterCall call(this);
      const auto found = std::find_if(asked.rbegin(), asked.rend(), [stream](const auto& scope) {
        return !scope->filter || scope->filter(stream);
      });
      if (found != asked.rend()) wanted = (*found)->id;
    } catch (...) {
      throw FilterThrew{};
    }
    asked.clear();
    lock.lock();
    return wanted;
  }
};

}  // namespace headroom::memory::internal
