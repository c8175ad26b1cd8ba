// Attention by tiles (Dao et al., "FlashAttention", 2022). Forward keeps the largest score and the
// sum of exponentials of each row and corrects what was added up when a larger one comes; backward
// computes the scores of a tile again from the log-sum-exp. Each of our threads multiplies its own
// tiles, and a tile of the output (backward: a head) is one thread's, so sums have one order.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "headroom/tensor/cpu/internal/exponential.h"
#include "headroom/tensor/cpu/internal/gemm.h"
#include "headroom/tensor/cpu/internal/sums.h"
#include "headroom/tensor/cpu/internal/wide.h"
#include "headroom/tensor/cpu/internal/workspace.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

static_assert(kAttentionKeys <= kBlock);

// Elements from the start of an operand to one head of it.
std::int64_t head_offset(const AttentionArgs& a,
                         const std::array<std::int64_t, kMaxDims>& strides,
                         std::int64_t head) {
  std::int64_t out = 0;
  for (int i = a.batch.size() - 1; i >= 0; --i) {
    out += head % a.batch[i] * strides[static_cast<std::size_t>(i)];
    head /= a.batch[i];
  }
  return out;
}

const char* byte_at(const void* data, DType dtype, std::int64_t element) {
  return static_cast<const char*>(data) +
         element * static_cast<std::int64_t>(headroom::size_bytes(dtype));
}

// Some rows of a head, as a matrix of C.
template <class C>
struct Tile {
  const C* data;
  int leading;
};

// One operand of one head.
template <class C>
class HeadRows {
 public:
  HeadRows(const AttentionArgs& a,
           const AttentionOperand& operand,
           std::int64_t head,
           std::int64_t width)
      : data_(byte_at(operand.data, a.dtype, head_offset(a, operand.batch_strides, head))),
        dtype_(a.dtype),
        stride_(operand.stride),
        width_(width) {}

  // In place, or widened into `buffer`.
  [[nodiscard]] Tile<C> rows(std::int64_t first, std::int64_t count, C* buffer) const {
    if (dtype_ == kNative<C>) {
      return {reinterpret_cast<const C*>(data_) + first * stride_, static_cast<int>(stride_)};
    }
    for (std::int64_t i = 0; i < count; ++i) {
      load_run(
          byte_at(data_, dtype_, (first + i) * stride_), dtype_, 1, width_, buffer + i * width_);
    }
    return {buffer, static_cast<int>(width_)};
  }

 private:
  const char* data_;
  DType dtype_;
  std::int64_t stride_;
  std::int64_t width_;
};

// Rows that are written: the output itself, or a buffer that is narrowed at the end.
template <class C>
class OutRows {
 public:
  OutRows(void* data, DType dtype, std::int64_t start, std::int64_t count, C* buffer)
      : data_(data == nullptr ? nullptr : const_cast<char*>(byte_at(data, dtype, start))),
        dtype_(dtype),
        count_(count),
        own_(dtype == kNative<C> ? reinterpret_cast<C*>(data_) : buffer) {}

  [[nodiscard]] bool is_wanted() const { return data_ != nullptr; }
  [[nodiscard]] C* data() const { return own_; }
  void clear() const {
    if (is_wanted()) std::fill_n(own_, count_, C{0});
  }
  void finish() const {
    if (is_wanted() && dtype_ != kNative<C>) store_run(data_, dtype_, 1, count_, own_);
  }

 private:
  char* data_;
  DType dtype_;
  std::int64_t count_;
  C* own_;
};

// Which scores: queries [row, row + rows) of a head and keys [column, column + columns).
struct Span {
  std::int64_t head;
  std::int64_t row;
  std::int64_t rows;
  std::int64_t column;
  std::int64_t columns;
};

// Keys of the span that row i of it may see.
std::int64_t visible(const AttentionArgs& a, const Span& s, std::int64_t i) {
  if (!a.is_causal) return s.columns;
  return std::clamp<std::int64_t>(s.row + i + 1 - s.column, 0, s.columns);
}

// The mask on one row of scores.
template <class C>
void mask_row(
    const AttentionArgs& a, const Span& s, std::int64_t i, std::int64_t count, C* scores) {
  if (a.mask.data == nullptr) return;
  Block<C> mask;
  const std::int64_t at = head_offset(a, a.mask.batch_strides, s.head) +
                          (s.row + i) * a.mask.row_stride + s.column * a.mask.column_stride;
  load_run(byte_at(a.mask.data, a.mask.dtype, at),
           a.mask.dtype,
           a.mask.column_stride,
           count,
           mask.values);
  constexpr C kNever = -std::numeric_limits<C>::infinity();
  if (a.mask.dtype == DType::kBool) {
    for (std::int64_t j = 0; j < count; ++j)
      scores[j] = mask.values[j] != C{0} ? scores[j] : kNever;
  } else {
    for (std::int64_t j = 0; j < count; ++j) scores[j] += mask.values[j];
  }
}

// scores = scale * q k^T.
template <class C>
void score(const AttentionArgs& a, const Span& s, const Tile<C>& q, const Tile<C>& k, C* scores) {
  gemm({.m = static_cast<int>(s.rows),
        .n = static_cast<int>(s.columns),
        .k = static_cast<int>(a.width),
        .lda = q.leading,
        .ldb = k.leading,
        .tb = CblasTrans,
        .alpha = a.scale},
       q.data,
       k.data,
       C{0},
       scores);
}

// --- Forward
// --------------------------------------------------------------------------------------

template <class C>
struct RowState {
  C* max;
  C* sum;
};

// Scores become exponentials, and what was added up before is brought to the new largest one.
template <class C>
void soften_row(
    const AttentionArgs& a, const Span& s, std::int64_t i, C* scores, RowState<C> state, C* out) {
  const std::int64_t count = visible(a, s, i);
  mask_row(a, s, i, count, scores);
  C max{};
  wide([&, before = state.max[i]] { max = largest(scores, count, before); });
  if (max == -std::numeric_limits<C>::infinity()) {
    std::fill_n(scores, s.columns, C{0});  // nothing to see so far
    return;
  }
  const C factor = exponential(state.max[i] - max);
  double sum = 0;
  wide([=, &sum] {
    sum = add_up<C>(count, [scores, max](std::int64_t j) {
      const C e = exponential(scores[j] - max);
      scores[j] = e;
      return e;
    });
  });
  std::fill(scores + count, scores + s.columns, C{0});
  state.max[i] = max;
  state.sum[i] = static_cast<C>(static_cast<double>(state.sum[i] * factor) + sum);
  if (s.column == 0 || factor == C{1}) return;
  for (std::int64_t j = 0; j < a.value_width; ++j) out[j] *= factor;
}

template <class C>
void finish_row(
    const AttentionArgs& a, std::int64_t i, std::int64_t at, RowState<C> state, C* out) {
  const bool is_empty = state.sum[i] == C{0};
  const C factor = is_empty ? C{0} : C{1} / state.sum[i];
  if (a.keys == 0) std::fill_n(out, a.value_width, C{0});
  for (std::int64_t j = 0; j < a.value_width; ++j) out[j] *= factor;
  if (a.log_sum_exp == nullptr) return;
  static_cast<C*>(a.log_sum_exp)[at + i] =
      is_empty ? std::numeric_limits<C>::infinity() : state.max[i] + std::log(state.sum[i]);
}

// Some queries of a head against all its keys.
template <class C>
void attend(const AttentionArgs& a, std::int64_t head, std::int64_t row, C* room) {
  const std::int64_t rows = std::min(kAttentionQueries, a.queries - row);
  C* scores = room;
  const RowState<C> state{scores + kAttentionQueries * kAttentionKeys,
                          scores + kAttentionQueries * (kAttentionKeys + 1)};
  C* wide_q = state.sum + kAttentionQueries;
  C* wide_k = wide_q + kAttentionQueries * a.width;
  C* wide_v = wide_k + kAttentionKeys * a.width;
  C* wide_y = wide_v + kAttentionKeys * a.value_width;
  std::fill_n(state.max, rows, -std::numeric_limits<C>::infinity());
  std::fill_n(state.sum, rows, C{0});
  const std::int64_t at = head * a.queries + row;
  const OutRows<C> y(a.y, a.dtype, at * a.value_width, rows * a.value_width, wide_y);
  const Tile<C> q = HeadRows<C>(a, a.q, head, a.width).rows(row, rows, wide_q);
  const HeadRows<C> keys(a, a.k, head, a.width);
  const HeadRows<C> values(a, a.v, head, a.value_width);
  const std::int64_t end = a.is_causal ? std::min(a.keys, row + rows) : a.keys;
  for (std::int64_t column = 0; column < end; column += kAttentionKeys) {
    const Span span{head, row, rows, column, std::min(kAttentionKeys, end - column)};
    score(a, span, q, keys.rows(column, span.columns, wide_k), scores);
    for (std::int64_t i = 0; i < rows; ++i) {
      soften_row(a, span, i, scores + i * span.columns, state, y.data() + i * a.value_width);
    }
    const Tile<C> v = values.rows(column, span.columns, wide_v);
    gemm({.m = static_cast<int>(rows),
          .n = static_cast<int>(a.value_width),
          .k = static_cast<int>(span.columns),
          .lda = static_cast<int>(span.columns),
          .ldb = v.leading},
         scores,
         v.data,
         column == 0 ? C{0} : C{1},
         y.data());
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    finish_row(a, i, at, state, y.data() + i * a.value_width);
  }
  y.finish();
}

// --- Backward
// -------------------------------------------------------------------------------------

// The operands of a head's backward.
template <class C>
struct HeadBack {
  HeadBack(const AttentionArgs& a, std::int64_t which, C* room)
      : args(a),
        head(which),
        q(a, a.q, which, a.width),
        k(a, a.k, which, a.width),
        v(a, a.v, which, a.value_width),
        g(a, a.grad, which, a.value_width),
        scores(room),
        slopes(scores + kAttentionQueries * kAttentionKeys),
        dots(slopes + kAttentionQueries * kAttentionKeys),
        wide_q(dots + a.queries),
        wide_g(wide_q + kAttentionQueries * a.width),
        wide_k(wide_g + kAttentionQueries * a.value_width),
        wide_v(wide_k + kAttentionKeys * a.width),
        wide_dk(wide_v + kAttentionKeys * a.value_width),
        wide_dv(wide_dk + kAttentionKeys * a.width),
        wide_dq(wide_dv + kAttentionKeys * a.value_width) {}

  const AttentionArgs& args;
  std::int64_t head;
  HeadRows<C> q;
  HeadRows<C> k;
  HeadRows<C> v;
  HeadRows<C> g;
  C* scores;
  C* slopes;
  C* dots;  // of each query's output with its gradient
  C* wide_q;
  C* wide_g;
  C* wide_k;
  C* wide_v;
  C* wide_dk;
  C* wide_dv;
  C* wide_dq;
};

template <class C>
void fill_dots(const HeadBack<C>& h) {
  const AttentionArgs& a = h.args;
  const std::int64_t width = a.value_width;
  for (std::int64_t i = 0; i < a.queries; ++i) {
    const std::int64_t at = (h.head * a.queries + i) * width;
    const C* g = h.g.rows(i, 1, h.wide_g).data;
    const C* y = reinterpret_cast<const C*>(byte_at(a.y, a.dtype, at));
    if (a.dtype != kNative<C>) {
      load_run(byte_at(a.y, a.dtype, at), a.dtype, 1, width, h.wide_v);
      y = h.wide_v;
    }
    h.dots[i] = static_cast<C>(add_up<C>(width, [=](std::int64_t j) { return g[j] * y[j]; }));
  }
}

// Scores become probabilities again.
template <class C>
void restore_row(const AttentionArgs& a, const Span& s, std::int64_t i, C* scores) {
  const std::int64_t count = visible(a, s, i);
  mask_row(a, s, i, count, scores);
  const C lse = static_cast<const C*>(a.log_sum_exp)[s.head * a.queries + s.row + i];
  wide([=] {
    for (std::int64_t j = 0; j < count; ++j) scores[j] = exponential(scores[j] - lse);
  });
  std::fill(scores + count, scores + s.columns, C{0});
}

// to += scale * m^T x, where m is a tile of scores.
template <class C>
void add_to_keys(
    const Span& s, const C* m, const Tile<C>& x, std::int64_t width, double scale, C* to) {
  gemm({.m = static_cast<int>(s.columns),
        .n = static_cast<int>(width),
        .k = static_cast<int>(s.rows),
        .lda = static_cast<int>(s.columns),
        .ldb = x.leading,
        .ta = CblasTrans,
        .alpha = scale},
       m,
       x.data,
       C{1},
       to);
}

// One tile: with p the probabilities and s their slopes p (g v^T - dots), dv += p^T g,
// dq += scale s k, dk += scale s^T q.
template <class C>
void attend_back(const HeadBack<C>& h,
                 const Span& s,
                 const Tile<C>& k,
                 const Tile<C>& v,
                 const OutRows<C>& dq,
                 const OutRows<C>& dk,
                 const OutRows<C>& dv) {
  const AttentionArgs& a = h.args;
  const Tile<C> q = h.q.rows(s.row, s.rows, h.wide_q);
  const Tile<C> g = h.g.rows(s.row, s.rows, h.wide_g);
  score(a, s, q, k, h.scores);
  for (std::int64_t i = 0; i < s.rows; ++i) restore_row(a, s, i, h.scores + i * s.columns);
  if (dv.is_wanted()) add_to_keys(s, h.scores, g, a.value_width, 1, dv.data());
  if (!dq.is_wanted() && !dk.is_wanted()) return;
  gemm({.m = static_cast<int>(s.rows),
        .n = static_cast<int>(s.columns),
        .k = static_cast<int>(a.value_width),
        .lda = g.leading,
        .ldb = v.leading,
        .tb = CblasTrans},
       g.data,
       v.data,
       C{0},
       h.slopes);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const C dot = h.dots[s.row + i];
    const C* p = h.scores + i * s.columns;
    C* slope = h.slopes + i * s.columns;
    wide([=, columns = s.columns] {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < columns; ++j) slope[j] = p[j] * (slope[j] - dot);
    });
  }
  if (dk.is_wanted()) add_to_keys(s, h.slopes, q, a.width, a.scale, dk.data());
  if (!dq.is_wanted()) return;
  gemm({.m = static_cast<int>(s.rows),
        .n = static_cast<int>(a.width),
        .k = static_cast<int>(s.columns),
        .lda = static_cast<int>(s.columns),
        .ldb = k.leading,
        .alpha = a.scale},
       h.slopes,
       k.data,
       C{1},
       dq.data() + s.row * a.width);
}

template <class C>
void attend_head_back(const AttentionArgs& a, std::int64_t head, C* room) {
  const HeadBack<C> h(a, head, room);
  const OutRows<C> dq(
      a.q_grad, a.dtype, head * a.queries * a.width, a.queries * a.width, h.wide_dq);
  dq.clear();
  fill_dots(h);
  for (std::int64_t column = 0; column < a.keys; column += kAttentionKeys) {
    const std::int64_t columns = std::min(kAttentionKeys, a.keys - column);
    const std::int64_t at = head * a.keys + column;
    const OutRows<C> dk(a.k_grad, a.dtype, at * a.width, columns * a.width, h.wide_dk);
    const OutRows<C> dv(a.v_grad, a.dtype, at * a.value_width, columns * a.value_width, h.wide_dv);
    dk.clear();
    dv.clear();
    const Tile<C> k = h.k.rows(column, columns, h.wide_k);
    const Tile<C> v = h.v.rows(column, columns, h.wide_v);
    const std::int64_t first = a.is_causal ? column / kAttentionQueries * kAttentionQueries : 0;
    for (std::int64_t row = first; row < a.queries; row += kAttentionQueries) {
      const std::int64_t rows = std::min(kAttentionQueries, a.queries - row);
      const std::int64_t seen = a.is_causal ? std::min(columns, row + rows - column) : columns;
      attend_back(h, {head, row, rows, column, seen}, k, v, dq, dk, dv);
    }
    dk.finish();
    dv.finish();
  }
  dq.finish();
}

// Pieces of work are taken by whoever is free; each slot has room of its own.
template <class C>
void attention_as(const AttentionArgs& a, const Launch& launch) {
  const GemmWithoutThreads own_threads;
  const std::int64_t tiles = (a.queries + kAttentionQueries - 1) / kAttentionQueries;
  const std::int64_t pieces = attention_pieces(a);
  std::atomic<std::int64_t> next{0};
  parallel_for(attention_slots(a), 1, [&](std::int64_t begin, std::int64_t) {
    C* room = static_cast<C*>(launch.workspace.data) + begin * attention_slot_elements(a);
    for (std::int64_t piece = next++; piece < pieces; piece = next++) {
      if (a.is_backward) {
        attend_head_back<C>(a, piece, room);
      } else {
        // The last rows first: they see most where attention is causal.
        attend<C>(a, piece / tiles, (tiles - 1 - piece % tiles) * kAttentionQueries, room);
      }
    }
  });
}

}  // namespace

void attention(const AttentionArgs& args, const Launch& launch) {
  args.dtype == DType::kF64 ? attention_as<double>(args, launch)
                            : attention_as<float>(args, launch);
}

}  // namespace headroom::tensor::cpu
