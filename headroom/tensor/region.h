// Region: a part of a program that runs twice, the second time to compute again what a checkpoint
// did not keep (headroom/autograd/checkpoint.h). Its ops must not change anything twice.
//
// An op in a region may write to tensors that the region made. A write to an older tensor is
// refused, unless the op marks it as a lasting effect and leaves it out of the second run:
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
  bool is_again = false;            // this is the second run
  std::uint64_t first_storage = 0;  // storages with smaller numbers are older than the region
};

// The innermost region of this thread.
class Region {
 public:
  // Whether this is the second run, in which lasting effects are left out.
  [[nodiscard]] static bool is_again() noexcept { return current_.is_again; }
  // Whether writes to tensors that are older than the region are refused.
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

// Allows a write to an older tensor. The op does it in the first run only.
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
