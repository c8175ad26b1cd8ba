#include "headroom/tensor/autocast.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/tensor/tape.h"

namespace headroom {
namespace {

// What a weight was cast to. The weight may go, and another take its place in memory.
struct CachedCast {
  std::weak_ptr<tensor::Impl> source;
  std::uint64_t version = 0;
  Tensor cast{};
};

// Of one thread, while a scope is open.
struct CastCache {
  int open_scopes = 0;
  std::uint64_t casts = 0;
  std::map<std::pair<const tensor::Impl*, DType>, CachedCast> entries{};
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
  auto& entries = cast_cache().entries;
  const auto found = entries.find({weight.shared().get(), dtype});
  if (found != entries.end() && found->second.source.lock() == weight.shared() &&
      found->second.version == weight.version()) {
    return found->second.cast;
  }
  Tensor cast = counted_cast(weight, dtype);
  // Without a history it would serve no later op that is recorded.
  if (!GradMode::is_enabled()) return cast;
  entries[{weight.shared().get(), dtype}] = {
      .source = weight.shared(), .version = weight.version(), .cast = cast};
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
  if (--cache.open_scopes == 0) cache.entries.clear();
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
