#include "headroom/tensor/autocast.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/tensor/tape.h"

namespace headroom {
namespace {

// The copy that a weight was cast to. The weight may go, and another take its place in memory.
struct CachedCast {
  std::weak_ptr<tensor::Impl> source;
  const tensor::Storage* storage = nullptr;  // a module may have been moved to another
  std::uint64_t version = 0;
  Tensor cast{};
};

// Of one thread, while a scope is open. Kept in the order of their making, and freed in it: the
// order of addresses would be another in every run.
struct CastCache {
  int open_scopes = 0;
  std::uint64_t casts = 0;
  std::vector<CachedCast> entries{};
  std::map<std::pair<const tensor::Impl*, DType>, std::size_t> places{};

  void clear() {
    places.clear();
    entries.clear();
  }
};

CastCache& cast_cache() {
  static thread_local CastCache cache;
  return cache;
}

bool is_weight(const Tensor& x) {
  return x.dtype() == DType::kF32 && x.requires_grad() && x.is_leaf();
}

Tensor counted_cast(const Tensor& x, DType dtype) {
  ++cast_cache().casts;
  return x.to(dtype);
}

Tensor cached_cast(const Tensor& weight, DType dtype) {
  CastCache& cache = cast_cache();
  const auto found = cache.places.find({weight.shared().get(), dtype});
  CachedCast* const entry = found != cache.places.end() ? &cache.entries[found->second] : nullptr;
  if (entry != nullptr && entry->source.lock() == weight.shared() &&
      entry->storage == &weight.storage() && entry->version == weight.version()) {
    return entry->cast;
  }
  Tensor cast = counted_cast(weight, dtype);
  // Without a history it would serve no later op that is recorded.
  if (!GradMode::is_enabled()) return cast;
  CachedCast made{.source = weight.shared(),
                  .storage = &weight.storage(),
                  .version = weight.version(),
                  .cast = cast};
  if (entry != nullptr) {
    *entry = std::move(made);
    return cast;
  }
  cache.places[{weight.shared().get(), dtype}] = cache.entries.size();
  cache.entries.push_back(std::move(made));
  return cast;
}

}  // namespace

std::uint64_t Autocast::casts() noexcept { return cast_cache().casts; }

AutocastScope::AutocastScope(DType lower, bool enabled) : outer_(Autocast::mode_) {
  if (lower != DType::kBF16 && lower != DType::kF16) {
    throw InvalidArgument("AutocastScope: bf16 or f16 is wanted, not " +
                          std::string(to_string(lower)));
  }
  ++cast_cache().open_scopes;
  Autocast::mode_ = {.is_enabled = enabled, .lower = lower};
}

AutocastScope::~AutocastScope() {
  Autocast::mode_ = outer_;
  CastCache& cache = cast_cache();
  if (--cache.open_scopes == 0) cache.clear();
}

struct AutocastCacheScope::Held {
  CastCache cache{};
};

AutocastCacheScope::AutocastCacheScope() : outer_(std::make_unique<Held>()) {
  std::swap(outer_->cache, cast_cache());
  cast_cache().casts = outer_->cache.casts;
}

AutocastCacheScope::~AutocastCacheScope() {
  outer_->cache.casts = cast_cache().casts;
  std::swap(outer_->cache, cast_cache());
}

namespace tensor {

Tensor lowered(const Tensor& x) {
  const DType lower = Autocast::mode().lower;
  if (!x.defined() || x.dtype() == lower || x.dtype() == DType::kF64 || !is_floating(x.dtype())) {
    return x;
  }
  return is_weight(x) ? cached_cast(x, lower) : counted_cast(x, lower);
}

Tensor widened(const Tensor& x) {
  const bool is_narrow = x.defined() && (x.dtype() == DType::kF16 || x.dtype() == DType::kBF16);
  return is_narrow ? counted_cast(x, DType::kF32) : x;
}

}  // namespace tensor
}  // namespace headroom
