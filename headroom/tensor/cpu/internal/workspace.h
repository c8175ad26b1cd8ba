// The room that the processor's kernels work in: how much, and how it is cut. Rules of shapes
// alone, never of the number of threads, so that a plan made anywhere holds here.
#pragma once

#include <cstdint>

#include "headroom/device/types.h"
#include "headroom/tensor/kernel_args.h"
#include "headroom/tensor/layer_args.h"

namespace headroom::tensor::cpu {

// f16 and bf16: both operands and the result of one product, in f32.
[[nodiscard]] std::uint64_t matmul_workspace(const MatmulArgs& args, const device::Properties&);

// --- Convolution --------------------------------------------------------------------------------

// Rows of the output whose windows are laid out at a time; 0 where the windows are x itself, or
// planes are convolved one by one.
[[nodiscard]] std::int64_t conv_tile_rows(const Conv2dArgs& a) noexcept;
// Elements of the windows of a tile.
[[nodiscard]] std::int64_t conv_tile_elements(const Conv2dArgs& a) noexcept;
// Elements of what is converted first: the weight, an image of x and one of y, each where it is of
// 16 bits or has its channels last; else 0.
[[nodiscard]] std::int64_t conv_weight_buffer(const Conv2dArgs& a) noexcept;
[[nodiscard]] std::int64_t conv_x_buffer(const Conv2dArgs& a) noexcept;
[[nodiscard]] std::int64_t conv_y_buffer(const Conv2dArgs& a) noexcept;
// In f32 (f64): the windows of a tile, then those three.
[[nodiscard]] std::uint64_t conv2d_workspace(const Conv2dArgs& a, const device::Properties&);

// --- Attention ----------------------------------------------------------------------------------

inline constexpr std::int64_t kAttentionQueries = 64;  // rows of a tile
inline constexpr std::int64_t kAttentionKeys = 128;    // and columns
inline constexpr std::int64_t kAttentionSlots = 32;    // tiles that may be worked on at a time

// Pieces of work: forward cuts heads into tiles of queries; on the way back a head is one piece.
[[nodiscard]] std::int64_t attention_pieces(const AttentionArgs& a) noexcept;
// Pieces that have room at a time.
[[nodiscard]] std::int64_t attention_slots(const AttentionArgs& a) noexcept;
// The contents of a slot, in elements. Forward: scores, the maximum and sum of each row. Backward:
// two tiles of scores, and a number for each query. 16 bits: tiles of all operands and what is
// added up.
[[nodiscard]] std::int64_t attention_slot_elements(const AttentionArgs& a) noexcept;
// In f32 (f64): the slots.
[[nodiscard]] std::uint64_t attention_workspace(const AttentionArgs& a, const device::Properties&);

}  // namespace headroom::tensor::cpu
