#include <array>
#include <cmath>
#include <limits>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"
#include "headroom/tensor/philox.h"

namespace headroom::tensor::cpu {
namespace {

constexpr double kTwoPi = 6.28318530717958647692;

// How many bits below 1 a number in [0, 1) has: the most that the type takes evenly, so that none
// is rounded, to 1 least of all. What is computed from them before it is stored has those of f32.
struct UnitRule {
  unsigned shift;
  double step;
};
UnitRule unit_rule(const GenerateArgs& args) {
  const bool is_stored = args.op == GenerateOp::kUniform;
  if (is_stored && args.out.dtype == DType::kF16) return {32 - 11, 0x1p-11};
  if (is_stored && args.out.dtype == DType::kBF16) return {32 - 8, 0x1p-8};
  return {32 - 24, 0x1p-24};
}

double unit(std::uint32_t word, const UnitRule& rule) {
  return static_cast<double>(word >> rule.shift) * rule.step;
}
// 53 of them, for f64.
double wide_unit(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32U) | low;
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

// Numbers in [0, 1), as many as one counter gives: four, or two in double precision.
struct Units {
  std::array<double, 4> values;
  int count;
};
Units units(const GenerateArgs& args, std::uint64_t counter, bool is_wide) {
  const std::array<std::uint32_t, 4> w = philox(args.random.seed, args.random.offset + counter);
  if (is_wide) return {{wide_unit(w[0], w[1]), wide_unit(w[2], w[3]), 0, 0}, 2};
  const UnitRule rule = unit_rule(args);
  return {{unit(w[0], rule), unit(w[1], rule), unit(w[2], rule), unit(w[3], rule)}, 4};
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
  const bool is_normal = args.op == GenerateOp::kNormal;
  const double scale = is_normal ? args.high : args.high - args.low;
  const double most = is_normal ? std::numeric_limits<double>::infinity() : args.most;
  const std::int64_t each = is_wide ? 2 : 4;
  for (std::int64_t i = 0; i < count; i += each) {
    Units now = units(args, static_cast<std::uint64_t>((start + i) / each), is_wide);
    if (is_normal) make_normal(now);
    for (std::int64_t j = 0; j < std::min(each, count - i); ++j) {
      to[i + j] = std::min(args.low + scale * now.values[static_cast<std::size_t>(j)], most);
    }
  }
}

// A 128-bit product maps 64 random bits to the range, which may be all of them, without a division.
// The sum wraps, as the range of a negative low end may be past 2^63.
void fill_integer(const GenerateArgs& args,
                  std::int64_t start,
                  std::int64_t count,
                  std::int64_t* to) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const auto w =
        philox(args.random.seed, args.random.offset + static_cast<std::uint64_t>((start + i) / 2));
    for (std::int64_t j = 0; j < std::min<std::int64_t>(2, count - i); ++j) {
      const auto at = static_cast<std::size_t>(2 * j);
      const std::uint64_t bits = (static_cast<std::uint64_t>(w[at]) << 32U) | w[at + 1];
      to[i + j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(args.integer_low) +
                                            high_product(bits, args.integer_range));
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
  // In unsigned numbers: a step down is a large one that wraps.
  const auto low = static_cast<std::uint64_t>(args.integer_low);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto steps = static_cast<std::uint64_t>(start + i);
    to[i] = static_cast<std::int64_t>(low + steps * args.integer_range);
  }
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

void generate(const GenerateArgs& given, const Launch&) {
  GenerateArgs args = given;
  args.random = resolved(given.random);
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
