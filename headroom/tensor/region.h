// Regions: parts of a program that will be computed again, so that ops in them must have no effect
// that a second run would have twice (headroom/autograd/checkpoint.h).
//
// Writes to what the region made itself are replayed with it. Writes to what was there before are
// refused, but for those that their op marks as lasting and leaves out the second time:
//
//   if (!Region::is_again()) {
//     const LastingEffect count;
//     batches.add_(1);
//   }
#pragma once

#include <cstdint>
#include <utility>

namespace headroom {

class Tensor;

namespace tensor {

struct RegionState {
  bool is_guarded = false;
  bool is_again = false;
  std::uint64_t first_storage = 0;  // by number; what is older was made outside
};

// The innermost region of this thread.
class Region {
 public:
  // Whether this is not the first run: lasting effects have been had.
  [[nodiscard]] static bool is_again() noexcept { return current_.is_again; }
  // Whether writes to what is older than the region are refused.
  [[nodiscard]] static bool is_guarded() noexcept { return current_.is_guarded; }
  // Whether the storage of `tensor` was made since the region began.
  [[nodiscard]] static bool made(const Tensor& tensor) noexcept;

 private:
  friend class RegionScope;
  friend class LastingEffect;
  // NOLINTNEXTLINE(readability-identifier-naming): a private member, as the others are
  static inline thread_local constinit RegionState current_{};
};

class RegionScope {
 public:
  explicit RegionScope(bool is_again) noexcept;
  ~RegionScope() { Region::current_ = outer_; }
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  RegionState outer_;
};

// Around a write that is to outlast the region and that its op does the first time only.
class LastingEffect {
 public:
  LastingEffect() noexcept : outer_(std::exchange(Region::current_.is_guarded, false)) {}
  ~LastingEffect() { Region::current_.is_guarded = outer_; }
  LastingEffect(const LastingEffect&) = delete;
  LastingEffect& operator=(const LastingEffect&) = delete;

 private:
  bool outer_;
};

// Throws InvalidArgument when `self` is older than the region.
void check_region_write(const char* name, const Tensor& self);

}  // namespace tensor
}  // namespace headroom
