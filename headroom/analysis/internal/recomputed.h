// Which blocks of a backward pass are activations that it computes a second time (checkpointing):
// they are asked for in the sizes and the order of the forward pass.
#pragma once

#include <span>
#include <vector>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/lifetimes.h"

namespace headroom::analysis::internal {

// For each block of the backward, by allocation. What is known as a gradient is none of them, nor
// between them. Linear.
[[nodiscard]] std::vector<char> find_recomputed(std::span<const Lifetime> forward,
                                                std::span<const Lifetime> backward,
                                                std::span<const CategoryAnswer> known);

}  // namespace headroom::analysis::internal
