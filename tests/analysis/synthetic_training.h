// Training programs that were never written: random layers, optimisers and habits, on our own
// allocator, recorded as PyTorch records. Each block carries what it is for as the line of its
// stack, so that a recording without stacks can be compared with it.
//
//   const Habits habits = random_habits(seed);
//   const trace::Trace trace = run_training(habits);
//   category_of_line(trace, lifetime)                  // the truth
#pragma once

#include <cstdint>
#include <string>

#include "headroom/analysis/index.h"
#include "headroom/memory/types.h"
#include "headroom/trace/trace.h"

namespace headroom::analysis::testing {

enum class Optimizer : std::uint8_t { kSgd, kMomentum, kAdam, kAmsgrad, kAdagrad, kAdafactor };
enum class ZeroGrad : std::uint8_t { kAfterStep, kBeforeForward, kBeforeBackward };
enum class Precision : std::uint8_t { kFull, kAutocast, kMasterCopies };
enum class End : std::uint8_t { kRunning, kTornDown, kCutInForward, kFailedInForward };

struct Habits {
  unsigned seed = 1;  // of sizes and of what varies from step to step
  int layers = 6;
  int steps = 5;
  int accumulate = 1;
  int frozen_layers = 0;  // from the input on
  Optimizer optimizer = Optimizer::kAdam;
  ZeroGrad zero_grad = ZeroGrad::kAfterStep;
  Precision precision = Precision::kFull;
  End end = End::kRunning;
  bool sets_to_none = true;
  bool has_foreach = true;         // the optimiser takes temporaries for all parameters at once
  bool has_step_counters = false;  // of the optimiser, on the device
  bool has_norms = true;           // layers of normalisation, with buffers
  bool has_embedding = false;      // a large table at the input
  bool has_workspaces = true;      // of libraries, when used first
  bool clips_gradients = false;
  bool evaluates = false;     // between steps
  bool varies_batch = false;  // its size, from step to step
  bool keeps_batch = false;   // until the next one is there
  bool recomputes = false;    // every layer in the backward
  double cut_front = 0;       // the part of the history that a ring forgot
};

[[nodiscard]] Habits random_habits(unsigned seed);
[[nodiscard]] std::string to_string(const Habits& habits);
[[nodiscard]] trace::Trace run_training(const Habits& habits);

// What run_training() wrote into the stack.
[[nodiscard]] memory::Category category_of_line(const trace::Trace& trace, trace::StackId stack);

// Of the bytes that were allocated at the peak of a recording without stacks and annotations.
struct Score {
  std::uint64_t bytes = 0;
  std::uint64_t right = 0;
  std::uint64_t parameters = 0;
  std::uint64_t said_parameters = 0;
  std::uint64_t states = 0;
  std::uint64_t said_states = 0;
  // Wrong, though not called a guess.
  std::uint64_t sure_and_wrong = 0;
};
[[nodiscard]] Score score_of(const Habits& habits);

}  // namespace headroom::analysis::testing
