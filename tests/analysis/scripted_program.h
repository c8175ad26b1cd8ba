// A program by hand: what it allocates and frees on our own allocator, recorded as PyTorch records,
// with lines of its source and the optimiser's marks.
//
//   ScriptedProgram program({.card_bytes = 1_GiB});
//   const int weights = program.alloc(16_MiB, 3);       // at line 3
//   program.mark_step();
//   const trace::Trace trace = program.finish();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/memory/types.h"
#include "headroom/trace/trace.h"

namespace headroom::analysis::testing {

struct ScriptOptions {
  std::uint64_t card_bytes = 8_GiB;
  std::optional<std::uint64_t> limit_bytes{};  // set by the program, and not recorded
  std::string conf{};
  bool has_stacks = true;
  bool has_marks = true;
};

class ScriptedProgram {
 public:
  explicit ScriptedProgram(const ScriptOptions& options = {});
  ~ScriptedProgram();
  ScriptedProgram(const ScriptedProgram&) = delete;
  ScriptedProgram& operator=(const ScriptedProgram&) = delete;

  static constexpr int kFailed = -1;
  // The block's number, or kFailed.
  int alloc(std::uint64_t size_bytes, int line = 1);
  void free(int block);
  void free(const std::vector<int>& blocks);
  // PyTorch's mark around Optimizer.step.
  void mark_step();

  [[nodiscard]] trace::Trace finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Forward, backward and a step of a small net; the gradients go at the next call.
class Training {
 public:
  explicit Training(ScriptedProgram& program, int layers = 4);
  // `scale` multiplies the activations. Those that were kept are returned, and held by the caller.
  std::vector<int> step(std::uint64_t scale = 1, bool keeps_graph = false);

 private:
  ScriptedProgram& program_;
  int layers_;
  std::vector<int> gradients_;
  bool has_state_ = false;
};

}  // namespace headroom::analysis::testing
