#include <array>
#include <cmath>

#include "headroom/tensor/cpu/blocks.h"
#include "headroom/tensor/cpu/cpu_kernels.h"
#include "headroom/tensor/cpu/philox.h"
#include "headroom/tensor/cpu/thread_pool.h"

namespace headroom::tensor::cpu {
namespace {

constexpr double kTwoPi = 6.28318530717958647692;

// 24 bits below 1, the most an f32 takes evenly; 53 for f64.
double unit(std::uint32_t word) { return static_cast<double>(word >> 8U) * 0x1p-24; }
double unit(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32U) | low;
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

// Numbers in [0, 1), as many as one counter gives: four, or two in double precision.
struct Units {
  std::array<double, 4> values;
  int count;
};
Units units(const GenerateArgs& args, std::uint64_t counter, bool is_wide) {
  const std::array<std::uint32_t, 4> w = philox(args.seed, args.offset + counter);
  if (is_wide) return {{unit(w[0], w[1]), unit(w[2], w[3]), 0, 0}, 2};
  return {{unit(w[0]), unit(w[1]), unit(w[2]), unit(w[3])}, 4};
}

// Box and Muller: two uniform numbers make two normal ones.
void make_normal(Units& units) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(units.count); i += 2) {
    const double radius = std::sqrt(-2.0 * std::log1p(-units.values[i]));
    const double angle = kTwoPi * units.values[i + 1];
    units.values[i] = radius * std::cos(angle);
    units.values[i + 1] = radius * std::sin(angle);
  }
}

void fill_real(const GenerateArgs& args, std::int64_t start, std::int64_t count, double* to) {
  const bool is_wide = args.out.dtype == DType::kF64;
  const std::int64_t each = is_wide ? 2 : 4;
  for (std::int64_t i = 0; i < count; i += each) {
    Units now = units(args, static_cast<std::uint64_t>((start + i) / each), is_wide);
    if (args.op == GenerateOp::kNormal) make_normal(now);
    const double scale = args.op == GenerateOp::kNormal ? args.high : args.high - args.low;
    for (std::int64_t j = 0; j < std::min(each, count - i); ++j) {
      to[i + j] = args.low + scale * now.values[static_cast<std::size_t>(j)];
    }
  }
}

// The range is below 2^63; a 128-bit product maps 64 random bits to it without a division.
void fill_integer(const GenerateArgs& args,
                  std::int64_t start,
                  std::int64_t count,
                  std::int64_t* to) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const auto w = philox(args.seed, args.offset + static_cast<std::uint64_t>((start + i) / 2));
    for (std::int64_t j = 0; j < std::min<std::int64_t>(2, count - i); ++j) {
      const auto at = static_cast<std::size_t>(2 * j);
      const std::uint64_t bits = (static_cast<std::uint64_t>(w[at]) << 32U) | w[at + 1];
      to[i + j] =
          args.integer_low + static_cast<std::int64_t>(high_product(bits, args.integer_range));
    }
  }
}

void fill_arange(const GenerateArgs& args, std::int64_t start, std::int64_t count, double* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = args.low + static_cast<double>(start + i) * args.high;
  }
}

void fill_arange(const GenerateArgs& args,
                 std::int64_t start,
                 std::int64_t count,
                 std::int64_t* to) {
  const auto step = static_cast<std::int64_t>(args.integer_range);
  for (std::int64_t i = 0; i < count; ++i) to[i] = args.integer_low + (start + i) * step;
}

template <class C, class Fill>
void by_block(const GenerateArgs& args, Fill&& fill) {
  parallel_for(args.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
    Block<C> block;
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t count = std::min(kBlock, end - at);
      fill(at, count, block.values);
      store(args.out, args.shape, at, count, block.values);
    }
  });
}

}  // namespace

void generate(const GenerateArgs& args, Launch) {
  const bool is_real = is_floating(args.out.dtype);
  if (args.op == GenerateOp::kInteger || (args.op == GenerateOp::kArange && !is_real)) {
    by_block<std::int64_t>(args, [&](std::int64_t start, std::int64_t count, std::int64_t* to) {
      args.op == GenerateOp::kInteger ? fill_integer(args, start, count, to)
                                      : fill_arange(args, start, count, to);
    });
    return;
  }
  by_block<double>(args, [&](std::int64_t start, std::int64_t count, double* to) {
    args.op == GenerateOp::kArange ? fill_arange(args, start, count, to)
                                   : fill_real(args, start, count, to);
  });
}

}  // namespace headroom::tensor::cpu
