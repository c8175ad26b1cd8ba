// SlotChain: a chain whose bytes are counted in slots, so that a table over all budgets is small.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "headroom/solve/chain.h"

namespace headroom::solve::internal {

struct SlotOption {
  int saved = 0;
  int forward_extra = 0;
  int backward_extra = 0;
  double cost = 0;
};

struct SlotStage {
  int forward_extra = 0;
  double forward_cost = 0;
  double trip_cost = std::numeric_limits<double>::infinity();  // where its input may not leave
  std::vector<SlotOption> options{};                           // numbered as the stage's own
};

struct SlotChain {
  int slots = 0;                // the budget
  std::vector<int> entering{};  // of what enters each stage, and the loss
  std::vector<SlotStage> stages{};
  int loss_extra = 0;
  double loss_cost = 0;
  bool has_trips = false;
};

enum class Rounding {
  kDown,    // what fits in bytes fits in slots: the cost found is a lower bound
  kSpread,  // each value to a neighbour such that sums over neighbouring stages are right
};

// `unit` bytes are a slot. Where it divides every size, both roundings are exact.
[[nodiscard]] SlotChain count_slots(const Chain& chain,
                                    std::uint64_t budget_bytes,
                                    std::uint64_t unit,
                                    Rounding rounding);

// The greatest common divisor of all sizes of the chain; 1 where all are 0.
[[nodiscard]] std::uint64_t common_unit(const Chain& chain);

}  // namespace headroom::solve::internal
