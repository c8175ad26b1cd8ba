#include "headroom/tensor/cpu/internal/workspace.h"

#include <algorithm>
#include <initializer_list>

#include "headroom/tensor/internal/sizes.h"
#include "headroom/tensor/kernels.h"

namespace headroom::tensor::cpu {
namespace {

bool is_16_bits(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

bool is_buffered(const Conv2dArgs& a, ImageLayout layout) {
  return is_16_bits(a.dtype) || layout == ImageLayout::kChannelsLast;
}

std::uint64_t bytes_of(std::initializer_list<std::int64_t> parts, DType dtype) {
  std::optional<std::int64_t> elements = 0;
  for (const std::int64_t part : parts) {
    if (elements) elements = size_sum(*elements, part);
  }
  const std::int64_t each = dtype == DType::kF64 ? sizeof(double) : sizeof(float);
  const auto bytes = elements ? size_product(*elements, each) : std::nullopt;
  return bytes ? static_cast<std::uint64_t>(*bytes) : kTooManyBytes;
}

}  // namespace

std::uint64_t matmul_workspace(const MatmulArgs& args, const device::Properties&) {
  if (!is_16_bits(args.dtype)) return 0;
  return bytes_of({args.m * args.k, args.k * args.n, args.m * args.n}, DType::kF32);
}

// Few enough for the caches, many enough for wide products and few meetings of the threads; a whole
// row at least.
std::int64_t conv_tile_rows(const Conv2dArgs& a) noexcept {
  constexpr std::int64_t kTile = std::int64_t{1} << 19U;
  constexpr Pair kOne{1, 1};
  const bool is_pixel = a.kernel == kOne && a.stride == kOne && a.padding == Pair{0, 0};
  if (is_pixel || is_planewise(a)) return 0;
  const std::int64_t rows = std::max<std::int64_t>(a.out_size[0], 1);
  const std::int64_t row = window_size(a) * std::max<std::int64_t>(a.out_size[1], 1);
  const std::int64_t most = std::clamp<std::int64_t>(kTile / row, 1, rows);
  // No more tiles than that takes, and those of one size.
  const std::int64_t tiles = (rows + most - 1) / most;
  return (rows + tiles - 1) / tiles;
}

std::int64_t conv_tile_elements(const Conv2dArgs& a) noexcept {
  return window_size(a) * conv_tile_rows(a) * a.out_size[1];
}

std::int64_t conv_weight_buffer(const Conv2dArgs& a) noexcept {
  return is_buffered(a, a.weight_layout) ? a.groups * a.out * window_size(a) : 0;
}

std::int64_t conv_x_buffer(const Conv2dArgs& a) noexcept {
  return is_buffered(a, a.x_layout) ? a.groups * a.in * a.in_size[0] * a.in_size[1] : 0;
}

std::int64_t conv_y_buffer(const Conv2dArgs& a) noexcept {
  return is_buffered(a, a.y_layout) ? a.groups * a.out * a.out_size[0] * a.out_size[1] : 0;
}

std::uint64_t conv2d_workspace(const Conv2dArgs& a, const device::Properties&) {
  return bytes_of(
      {conv_tile_elements(a), conv_weight_buffer(a), conv_x_buffer(a), conv_y_buffer(a)}, a.dtype);
}

std::int64_t attention_pieces(const AttentionArgs& a) noexcept {
  const std::int64_t tiles = (a.queries + kAttentionQueries - 1) / kAttentionQueries;
  return a.heads * (a.is_backward ? 1 : tiles);
}

std::int64_t attention_slots(const AttentionArgs& a) noexcept {
  return std::min(attention_pieces(a), kAttentionSlots);
}

std::int64_t attention_slot_elements(const AttentionArgs& a) noexcept {
  const bool is_wide = !is_16_bits(a.dtype);
  const std::int64_t tile = kAttentionQueries * kAttentionKeys;
  const std::int64_t width = a.width + a.value_width;
  if (!a.is_backward) {
    return tile + 2 * kAttentionQueries +
           (is_wide ? 0 : (kAttentionQueries + kAttentionKeys) * width);
  }
  return 2 * tile + a.queries +
         (is_wide ? 0 : (kAttentionQueries + 2 * kAttentionKeys) * width + a.queries * a.width);
}

std::uint64_t attention_workspace(const AttentionArgs& a, const device::Properties&) {
  const auto elements = size_product(attention_slots(a), attention_slot_elements(a));
  return elements ? bytes_of({*elements}, a.dtype) : kTooManyBytes;
}

}  // namespace headroom::tensor::cpu
