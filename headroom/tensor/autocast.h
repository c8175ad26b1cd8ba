// Autocast: each op chooses the type that it computes in. Inside a scope, matrix products and
// convolutions compute in bf16 or f16, ops that would lose accuracy there compute in f32, and all
// others compute in the type of their inputs.
//
//   {
//     const AutocastScope autocast(kBF16);
//     loss = cross_entropy(model(x), target);      // weights stay f32
//   }
//   loss.backward();                               // and so do their gradients
//
//   lower: matmul, adjoint_matmul, matmul_adjoint, bmm, linear, conv2d,
//          scaled_dot_product_attention
//   f32:   exp, expm1, log, log1p, log2, pow, reciprocal, rsqrt, softplus, softmax, log_softmax,
//          norm, layer_norm, cross_entropy and the other losses
//
// Only f32, f16 and bf16 are cast. A cast is a recorded `to`. Weights (f32 leaves that need a
// gradient) are cast once; the cast is kept until the outermost scope of the thread ends or the
// weight is written to. Scopes nest and belong to their thread; ThreadState carries them to another
// thread or to a second computation. Backward functions run without autocast, in the types that the
// forward used.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/tensor/tensor.h"

namespace headroom {

struct AutocastMode {
  bool is_enabled = false;
  DType lower = DType::kBF16;

  friend bool operator==(const AutocastMode&, const AutocastMode&) = default;
};

class Autocast {
 public:
  [[nodiscard]] static bool is_enabled() noexcept { return mode_.is_enabled; }
  [[nodiscard]] static AutocastMode mode() noexcept { return mode_; }
  // How many casts were made for ops of this thread. A cast that was kept counts once.
  [[nodiscard]] static std::uint64_t casts() noexcept;

 private:
  friend class AutocastScope;
  friend class AutocastPause;
  // NOLINTNEXTLINE(readability-identifier-naming): a private member, as the others are
  static inline thread_local constinit AutocastMode mode_{};
};

class AutocastScope {
 public:
  // Throws InvalidArgument for a type that is neither bf16 nor f16.
  explicit AutocastScope(DType lower = DType::kBF16, bool enabled = true);
  explicit AutocastScope(AutocastMode mode) : AutocastScope(mode.lower, mode.is_enabled) {}
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastMode outer_;
};

// Weights cast in it are kept to its end at most, and none that was cast before is found: for what
// computes again and must leave nothing behind.
class AutocastCacheScope {
 public:
  AutocastCacheScope();
  ~AutocastCacheScope();
  AutocastCacheScope(const AutocastCacheScope&) = delete;
  AutocastCacheScope& operator=(const AutocastCacheScope&) = delete;

 private:
  struct Held;
  std::unique_ptr<Held> outer_;
};

// --- For ops: one line at their entry
// -------------------------------------------------------------
//
//   if (Autocast::is_enabled()) return in_lower_type([](auto&&... t) { return bmm(t...); }, a, b);

// Off for the op that runs on what was cast, and for backward functions. It is no scope: a cache
// neither starts with it nor ends.
class AutocastPause {
 public:
  AutocastPause() noexcept : outer_(Autocast::mode_) { Autocast::mode_.is_enabled = false; }
  ~AutocastPause() { Autocast::mode_ = outer_; }
  AutocastPause(const AutocastPause&) = delete;
  AutocastPause& operator=(const AutocastPause&) = delete;

 private:
  AutocastMode outer_;
};

namespace tensor {

// x in the type of the scope; itself where it is not to be cast, or undefined.
[[nodiscard]] Tensor lowered(const Tensor& x);
// f16 and bf16 in f32.
[[nodiscard]] Tensor widened(const Tensor& x);

template <class Op, class... Tensors>
auto in_lower_type(Op op, const Tensors&... x) {
  const auto run = [&op](const auto&... cast) {
    const AutocastPause pause;
    return op(cast...);
  };
  return run(lowered(x)...);
}

template <class Op, class... Tensors>
auto in_f32(Op op, const Tensors&... x) {
  const auto run = [&op](const auto&... cast) {
    const AutocastPause pause;
    return op(cast...);
  };
  return run(widened(x)...);
}

}  // namespace tensor
}  // namespace headroom
