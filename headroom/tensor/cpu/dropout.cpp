#include <cmath>

#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"
#include "headroom/tensor/philox.h"

namespace headroom::tensor::cpu {
namespace {

constexpr std::int64_t kWords = 4;  // of a counter

// 1 where element start + i is kept, else 0; start is a multiple of a block. What would be a number
// in [0, 1) of 24 bits is compared as a whole number.
void draw_kept(const DropoutArgs& args,
               std::int64_t start,
               std::int64_t count,
               std::uint8_t* kept) {
  const auto least = static_cast<std::uint32_t>(std::ceil(args.p * 0x1p24));
  for (std::int64_t i = 0; i < count; i += kWords) {
    const auto counter = static_cast<std::uint64_t>((start + i) / kWords);
    const auto words = philox(args.random.seed, args.random.offset + counter);
    // A block has room for all four; those past the count are not read.
    for (std::size_t j = 0; j < kWords; ++j) {
      kept[i + static_cast<std::int64_t>(j)] = static_cast<std::uint8_t>((words[j] >> 8U) >= least);
    }
  }
}

void read_kept(const std::uint8_t* bits, std::int64_t count, std::uint8_t* kept) {
  for (std::int64_t i = 0; i < count; ++i) {
    kept[i] = static_cast<std::uint8_t>((bits[i / 8] >> static_cast<unsigned>(i % 8)) & 1U);
  }
}

void write_kept(const std::uint8_t* kept, std::int64_t count, std::uint8_t* bits) {
  for (std::int64_t i = 0; i < count; i += 8) {
    unsigned byte = 0;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, count - i); ++j) {
      byte |= static_cast<unsigned>(kept[i + j]) << static_cast<unsigned>(j);
    }
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
}

template <class C>
void drop_block(const DropoutArgs& args, std::int64_t start, std::int64_t count) {
  std::uint8_t kept[kBlock];
  Block<C> block;
  auto* bits = args.bits == nullptr ? nullptr : static_cast<std::uint8_t*>(args.bits) + start / 8;
  if (args.is_backward) {
    read_kept(bits, count, kept);
  } else {
    draw_kept(args, start, count, kept);
    if (bits != nullptr) write_kept(kept, count, bits);
  }
  const auto bytes = static_cast<std::int64_t>(headroom::size_bytes(args.dtype));
  load_run(static_cast<const char*>(args.in) + start * bytes, args.dtype, 1, count, block.values);
  const C scale = static_cast<C>(args.scale);
  for (std::int64_t i = 0; i < count; ++i) {
    block.values[i] = kept[i] != 0 ? block.values[i] * scale : C{0};
  }
  store_run(static_cast<char*>(args.out) + start * bytes, args.dtype, 1, count, block.values);
}

}  // namespace

void dropout(const DropoutArgs& given, const Launch&) {
  DropoutArgs args = given;
  if (!args.is_backward) args.random = resolved(given.random);
  parallel_for(args.numel, kGrain / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t count = std::min(kBlock, end - at);
      args.dtype == DType::kF64 ? drop_block<double>(args, at, count)
                                : drop_block<float>(args, at, count);
    }
  });
}

}  // namespace headroom::tensor::cpu
