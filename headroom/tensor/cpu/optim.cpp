// Lists of tensors in one sweep: pieces of all of them are shared out among the threads. Every
// element is by itself, and partial sums are of pieces, so the bits are those of one thread.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/cpu/internal/wide.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// A block of one tensor of the list, as C: where it lies if that is its type, else a copy that is
// written back.
template <class C>
class TensorBlock {
 public:
  TensorBlock(void* data, DType dtype, std::int64_t start, std::int64_t count, bool reads = true)
      : data_(static_cast<char*>(data) +
              start * static_cast<std::int64_t>(headroom::size_bytes(dtype))),
        dtype_(dtype),
        count_(count) {
    if (is_direct()) return;
    if (reads) load_run(data_, dtype_, 1, count_, copy_.values);
  }
  [[nodiscard]] C* values() { return is_direct() ? reinterpret_cast<C*>(data_) : copy_.values; }
  void write_back() {
    if (!is_direct()) store_run(data_, dtype_, 1, count_, copy_.values);
  }

 private:
  [[nodiscard]] bool is_direct() const { return dtype_ == kNative<C>; }

  char* data_;
  DType dtype_;
  std::int64_t count_;
  Block<C> copy_;
};

template <class C>
void sgd_block(const MultiTensorArgs& args,
               const MultiTensorEntry& e,
               std::int64_t start,
               std::int64_t count) {
  const auto lr = static_cast<C>(*args.lr);
  const auto decay = static_cast<C>(args.weight_decay);
  const auto momentum = static_cast<C>(args.momentum);
  const auto fresh = static_cast<C>(1 - args.dampening);
  TensorBlock<C> param(e.param, e.dtype, start, count);
  TensorBlock<C> grad(e.grad, e.dtype, start, count);
  C* const p = param.values();
  const C* const g = grad.values();
  if (e.first == nullptr) {
    wide([=] {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) p[i] -= lr * (g[i] + decay * p[i]);
    });
    param.write_back();
    return;
  }
  const bool is_first = *e.step == 0;
  TensorBlock<C> buffer(e.first, e.dtype, start, count, !is_first);
  C* const m = buffer.values();
  wide([=, is_nesterov = args.is_nesterov] {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const C d = g[i] + decay * p[i];
      m[i] = is_first ? d : momentum * m[i] + fresh * d;
      p[i] -= lr * (is_nesterov ? d + momentum * m[i] : m[i]);
    }
  });
  buffer.write_back();
  param.write_back();
}

// The order of roundings is PyTorch's: lerp, mul and addcmul, sqrt, divide, add, addcdiv.
template <class C>
void adam_block(const MultiTensorArgs& args,
                const MultiTensorEntry& e,
                std::int64_t start,
                std::int64_t count) {
  const auto steps = static_cast<double>(*e.step + 1);
  const auto step_size = static_cast<C>(*args.lr / (1 - std::pow(args.beta1, steps)));
  const auto root = static_cast<C>(std::sqrt(1 - std::pow(args.beta2, steps)));
  const auto keep = static_cast<C>(args.is_decoupled ? 1 - *args.lr * args.weight_decay : 1);
  const auto decay = static_cast<C>(args.is_decoupled ? 0 : args.weight_decay);
  const auto fresh1 = static_cast<C>(1 - args.beta1);
  const auto beta2 = static_cast<C>(args.beta2);
  const auto fresh2 = static_cast<C>(1 - args.beta2);
  const auto eps = static_cast<C>(args.eps);
  const bool is_first = *e.step == 0;
  TensorBlock<C> param(e.param, e.dtype, start, count);
  TensorBlock<C> grad(e.grad, e.dtype, start, count);
  TensorBlock<C> first(e.first, e.dtype, start, count, !is_first);
  TensorBlock<C> second(e.second, e.dtype, start, count, !is_first);
  C* const p = param.values();
  const C* const g = grad.values();
  C* const m = first.values();
  C* const v = second.values();
  wide([=] {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      p[i] *= keep;
      const C d = g[i] + decay * p[i];
      const C mean = is_first ? C{0} : m[i];
      const C square = is_first ? C{0} : v[i];
      m[i] = mean + fresh1 * (d - mean);
      v[i] = beta2 * square + fresh2 * d * d;
      p[i] -= step_size * (m[i] / (std::sqrt(v[i]) / root + eps));
    }
  });
  first.write_back();
  second.write_back();
  param.write_back();
}

template <class C>
void scale_block(const MultiTensorArgs& args,
                 const MultiTensorEntry& e,
                 std::int64_t start,
                 std::int64_t count) {
  const bool unscales = args.op == MultiTensorOp::kUnscale;
  if (!unscales && *args.factor == 1) return;
  TensorBlock<C> grad(e.grad, e.dtype, start, count);
  C* const g = grad.values();
  const auto factor = static_cast<C>(unscales ? 1 / *args.factor : *args.factor);
  bool is_finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    is_finite = is_finite && std::isfinite(g[i]);
    g[i] *= factor;
  }
  grad.write_back();
  if (!is_finite && unscales) std::atomic_ref<double>(*args.found).store(1);
}

template <class C>
double squares_of_block(const MultiTensorEntry& e, std::int64_t start, std::int64_t count) {
  TensorBlock<C> grad(e.grad, e.dtype, start, count);
  const C* const g = grad.values();
  double lanes[4] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    lanes[i % 4] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  }
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

template <class C>
void run_piece(const MultiTensorArgs& args,
               const MultiTensorEntry& e,
               std::int64_t piece,
               double* partial) {
  const std::int64_t end = std::min((piece + 1) * kMultiTensorPiece, e.numel);
  double squares = 0;
  for (std::int64_t at = piece * kMultiTensorPiece; at < end; at += kBlock) {
    const std::int64_t count = std::min(kBlock, end - at);
    switch (args.op) {
      case MultiTensorOp::kSgd:
        sgd_block<C>(args, e, at, count);
        break;
      case MultiTensorOp::kAdam:
        adam_block<C>(args, e, at, count);
        break;
      case MultiTensorOp::kScale:
      case MultiTensorOp::kUnscale:
        scale_block<C>(args, e, at, count);
        break;
      case MultiTensorOp::kSquareSums:
        squares += squares_of_block<C>(e, at, count);
        break;
      case MultiTensorOp::kCountStep:
        break;
    }
  }
  if (args.op == MultiTensorOp::kSquareSums) *partial = squares;
}

}  // namespace

void multi_tensor(const MultiTensorArgs& args, const Launch&) {
  if (args.skip != nullptr && *args.skip != 0) return;
  const std::span<const MultiTensorEntry> entries(args.entries,
                                                  static_cast<std::size_t>(args.count));
  if (args.op == MultiTensorOp::kCountStep) {
    for (const MultiTensorEntry& entry : entries) ++*entry.step;
    return;
  }
  parallel_for(args.pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto after = std::ranges::upper_bound(entries, i, {}, &MultiTensorEntry::first_piece);
      const MultiTensorEntry& entry = *(after - 1);
      const std::int64_t piece = i - entry.first_piece;
      double* const partial = args.partial == nullptr ? nullptr : args.partial + i;
      entry.dtype == DType::kF64 ? run_piece<double>(args, entry, piece, partial)
                                 : run_piece<float>(args, entry, piece, partial);
    }
  });
}

}  // namespace headroom::tensor::cpu
