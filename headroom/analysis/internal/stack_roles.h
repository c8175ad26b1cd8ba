// The part of a program that asked for a block, from the block's stack or annotation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "headroom/analysis/index.h"

namespace headroom::analysis::internal {

enum class Asker : std::uint8_t {
  kUnknown,
  kModel,           // builds or moves a model: what stays is parameters
  kForward,         // a module, or a second forward inside of a backward
  kBackward,        // the engine of the gradients
  kOptimizer,       // a step: what stays is state, the rest comes and goes
  kOptimizerState,  // the part of it that makes state
  kData,            // a loader
  kWorkspace,       // a library's scratch memory
};

class Askers {
 public:
  // Is referred to.
  explicit Askers(const TraceIndex& index);

  [[nodiscard]] Asker asker_of(const Lifetime& block);

 private:
  [[nodiscard]] Asker by_stack(StackId stack) const;
  [[nodiscard]] Asker by_annotation(DetailsId details) const;
  void find_steps();
  [[nodiscard]] bool is_in_step(std::uint32_t event);

  const TraceIndex& index_;
  std::vector<std::uint8_t> known_;      // by stack; 255 where it is still to be found
  std::vector<std::uint8_t> annotated_;  // the same by details
  // Python's stacks are empty on the threads of the backward engine.
  bool empty_is_backward_ = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> steps_;  // of the optimiser, by position
  std::size_t next_step_ = 0;
};

}  // namespace headroom::analysis::internal
