#include "benchmarks/ops/bench_ops_plain.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

namespace headroom::cli::plain {
namespace {

// Equal parts, the caller taking the first. Parts start where rows do.
template <class Body>
void cut(const Loop& loop, const Body& body) {
  const std::int64_t rows = (loop.count + loop.row - 1) / loop.row;
  const std::int64_t each = (rows + loop.threads - 1) / loop.threads * loop.row;
  std::vector<std::jthread> threads;
  for (std::int64_t begin = each; begin < loop.count; begin += each) {
    threads.emplace_back(
        [&body, begin, end = std::min(begin + each, loop.count)] { body(begin, end); });
  }
  body(std::int64_t{0}, std::min(each, loop.count));
}

}  // namespace

void add(const Loop& loop) {
  cut(loop, [out = loop.out, a = loop.a, b = loop.b](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

void add_row(const Loop& loop) {
  cut(loop, [&loop](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += loop.row) {
      float* out = loop.out + at;
      const float* a = loop.a + at;
      const float* b = loop.b;
      for (std::int64_t i = 0; i < loop.row; ++i) out[i] = a[i] + b[i];
    }
  });
}

void scale(const Loop& loop) {
  cut(loop, [out = loop.out, a = loop.a](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] * 2.5F;
  });
}

void relu(const Loop& loop) {
  cut(loop, [out = loop.out, a = loop.a](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] < 0 ? 0 : a[i];
  });
}

void copy(const Loop& loop) {
  cut(loop, [out = loop.out, a = loop.a](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i];
  });
}

void exponential(const Loop& loop) {
  cut(loop, [out = loop.out, a = loop.a](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = std::exp(a[i]);
  });
}

float sum(const Loop& loop) {
  std::vector<float> parts(static_cast<std::size_t>(loop.threads) + 1);
  const std::int64_t each = (loop.count + loop.threads - 1) / loop.threads;
  cut(loop, [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kLanes = 16;
    float lanes[kLanes] = {};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += loop.a[i + j];
    }
    float total = 0;
    for (; i < end; ++i) total += loop.a[i];
    for (const float lane : lanes) total += lane;
    parts[static_cast<std::size_t>(begin / each)] = total;
  });
  float total = 0;
  for (const float part : parts) total += part;
  return total;
}

}  // namespace headroom::cli::plain
