// Categories of blocks from lifetimes and sizes alone: for recordings without stacks.
//
// Gradients are the key. They have the sizes of parameters, are made between the turn of a pass and
// its end, and outlive it; once they are found, what was there before the first pass is parameters,
// and what is made between the passes and stays is the optimiser's state. Without gradients there
// are neither: a program that only computes forward has parameters and activations.
#pragma once

#include <vector>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/index.h"

namespace headroom::analysis::internal {

// For each lifetime of the index.
[[nodiscard]] std::vector<CategoryAnswer> roles_by_lifetime(const TraceIndex& index);

}  // namespace headroom::analysis::internal
