// Chains for property tests: tiny bytes and whole costs, so that every sum is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "headroom/solve/chain.h"

namespace headroom::solve::testing {

class ChainMaker {
 public:
  explicit ChainMaker(unsigned seed) : random_(seed) {}

  std::uint64_t number(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random_);
  }

  // Of one to `most_options` options a stage; some inputs may go to the host.
  Chain tiny(std::size_t stages, std::size_t most_options, bool has_trips) {
    Chain chain;
    chain.input_bytes = number(0, 4);
    chain.loss_cost = cost(0, 3);
    chain.loss_extra_bytes = number(0, 3);
    for (std::size_t i = 0; i < stages; ++i) {
      Stage stage{.output_bytes = number(0, 5),
                  .forward_cost = cost(1, 6),
                  .forward_extra_bytes = number(0, 3)};
      const std::uint64_t options = number(1, most_options);
      for (std::uint64_t k = 0; k < options; ++k) {
        stage.options.push_back({.saved_bytes = stage.output_bytes + number(0, 8),
                                 .forward_cost = cost(1, 7),
                                 .backward_cost = cost(1, 12),
                                 .forward_extra_bytes = number(0, 3),
                                 .backward_extra_bytes = number(0, 4)});
      }
      if (has_trips && number(0, 1) == 0) stage.input_trip_cost = cost(0, 5);
      chain.stages.push_back(stage);
    }
    return chain;
  }

  // In bytes as models have them: nothing divides anything.
  Chain large(std::size_t stages) {
    Chain chain;
    chain.input_bytes = number(1, 1U << 26U);
    for (std::size_t i = 0; i < stages; ++i) {
      Stage stage{.output_bytes = number(1U << 20U, 1U << 26U),
                  .forward_cost = cost(1, 1000),
                  .forward_extra_bytes = number(0, 1U << 24U)};
      const std::uint64_t inner = number(0, 1U << 28U);
      const double backward = 2 * stage.forward_cost;
      stage.options.push_back({.saved_bytes = stage.output_bytes + inner,
                               .forward_cost = stage.forward_cost,
                               .backward_cost = backward,
                               .backward_extra_bytes = number(0, 1U << 24U)});
      if (number(0, 1) == 0) {
        stage.options.push_back({.saved_bytes = stage.output_bytes + inner / 2,
                                 .forward_cost = stage.forward_cost,
                                 .backward_cost = backward + cost(0, 300),
                                 .backward_extra_bytes = inner / 2});
      }
      chain.stages.push_back(stage);
    }
    return chain;
  }

 private:
  double cost(std::uint64_t low, std::uint64_t high) {
    return static_cast<double>(number(low, high));
  }

  std::mt19937 random_;
};

}  // namespace headroom::solve::testing
