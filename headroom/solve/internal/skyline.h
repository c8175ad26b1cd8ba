// Skyline: fills the lowest stretch of time again and again, each time with the heaviest item that
// lives inside of it, and lifts it to its lower neighbour where nobody does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "headroom/solve/internal/part.h"

namespace headroom::solve::internal {

// An item weighs length^length_power * size^size_power, less where it leaves gaps at both of its
// sides: by its share of the nearer gap times `gap_cost`.
struct SkylineRule {
  double length_power = 1;
  double size_power = 0;
  double gap_cost = 1;
};

// Returns the height; UINT64_MAX where `is_over` said so, which is asked now and then.
std::uint64_t pack_by_skyline(const Part& part,
                              const SkylineRule& rule,
                              const std::function<bool()>& is_over,
                              Offsets& offsets);

// The packing of an allocator that takes the smallest free block for each item at its start. Never
// asks for time: it is what there is when nothing better was found.
std::uint64_t pack_by_sweep(const Part& part, Offsets& offsets);

}  // namespace headroom::solve::internal
