// Chain: a training step as stages in a row, with the bytes and the time of each. What a planner of
// checkpoints has to know, and nothing of tensors.
//
//   input -> stage 0 -> stage 1 -> ... -> stage n-1 -> loss -> backward of n-1, ..., 1, 0
//
// Bytes are exact; costs are in any unit of time or arithmetic, the same for all stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace headroom::solve {

// One way to run a stage's forward so that its backward can run later. Full keeping is one; another
// drops what is cheap to compute again, and a third sends it to the host. They differ in bytes and
// in time: a backward that first computes something again, or waits for a copy, costs more.
struct SaveOption {
  // All that stays for the backward, with the stage's output and without its input.
  std::uint64_t saved_bytes = 0;
  double forward_cost = 0;
  double backward_cost = 0;
  // Beyond what is live, while it runs: workspace, or bytes on their way to the host and back.
  std::uint64_t forward_extra_bytes = 0;
  std::uint64_t backward_extra_bytes = 0;
  std::uint64_t host_bytes = 0;
};

struct Stage {
  std::uint64_t output_bytes = 0;  // the gradient of the output has as many
  // A forward of which only the output stays.
  double forward_cost = 0;
  std::uint64_t forward_extra_bytes = 0;
  std::vector<SaveOption> options{};  // at least one
  // Set where the stage's input, kept as a checkpoint, may wait in host memory: the time of a trip
  // there and back that no work hides.
  std::optional<double> input_trip_cost{};
};

struct Chain {
  std::uint64_t input_bytes = 0;
  std::vector<Stage> stages{};
  double loss_cost = 0;
  std::uint64_t loss_extra_bytes = 0;

  // Of what enters stage i; of stage n, what enters the loss.
  [[nodiscard]] std::uint64_t entering_bytes(std::size_t stage) const {
    return stage == 0 ? input_bytes : stages[stage - 1].output_bytes;
  }
};

// Longer chains are to be grouped: the time to plan grows with the third power.
inline constexpr std::size_t kMostStages = 1000;

// Throws InvalidArgument, which names the stage, where a chain cannot be: no stages or too many, no
// option, fewer bytes saved than put out, a cost that is negative or no number, sums past 2^62.
void check_chain(const Chain& chain);

// The option of a stage that costs the least in all; of equals, the one that keeps the least.
[[nodiscard]] std::size_t quickest_option(const Stage& stage);

// Every step runs once: no schedule costs less.
[[nodiscard]] double cost_without_recomputing(const Chain& chain);

}  // namespace headroom::solve
