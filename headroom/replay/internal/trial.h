// One setting tried on several programs.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headroom/replay/internal/halves.h"
#include "headroom/replay/internal/live_floor.h"
#include "headroom/replay/player.h"
#include "headroom/replay/program.h"
#include "headroom/replay/tune.h"

namespace headroom::replay::internal {

struct Trial {
  Candidate candidate{};
  bool was_stopped = false;  // it reserved more than was of interest; the bytes are those so far
  std::uint64_t ops = 0;     // that it took
};

// A trial that passes one of these is of no interest, and is stopped.
struct TrialBounds {
  double most_overhead = HUGE_VAL;
  double least_served = 0;
  // PyTorch may do again what it was seen to do; an answer keeps to the limit.
  bool may_pass_limit = false;
};

class Trials {
 public:
  Trials(std::span<const Program* const> programs, const TuneOptions& options);

  [[nodiscard]] bool has_limit() const noexcept { return has_limit_; }
  // The bounds that are asked about; empty where they are the recording's own.
  [[nodiscard]] Bounds bounds() const {
    return {.card_bytes = options_.card_bytes, .limit_bytes = options_.limit_bytes};
  }
  // Stops when it is certain to pass the bounds.
  [[nodiscard]] Trial run(const memory::AllocatorConfig& config, const TrialBounds& bounds) const;
  [[nodiscard]] Trial run_as_recorded() const;
  // Ops of all programs, in one order.
  [[nodiscard]] std::uint64_t op_count() const noexcept { return op_count_; }

 private:
  using ConfigOf = std::function<const memory::AllocatorConfig&(const Program&)>;

  [[nodiscard]] Trial run_each(const ConfigOf& config, const TrialBounds& bounds) const;
  [[nodiscard]] ReplayOptions options_for(const Program& program,
                                          const memory::AllocatorConfig& config) const;
  // With bounds for this program alone. False where it was stopped.
  [[nodiscard]] bool run_program(std::size_t number,
                                 ReplayOptions options,
                                 const TrialBounds& bounds,
                                 Trial& trial) const;
  // Before anything is run.
  [[nodiscard]] double least_overhead(std::size_t number, const ReplayOptions& options) const;
  [[nodiscard]] ReplayResult run_once(std::size_t number, const ReplayOptions& options) const;

  std::span<const Program* const> programs_;
  const TuneOptions& options_;
  bool has_limit_ = false;
  std::uint64_t op_count_ = 0;
  // By program: halves, or where it has none a floor.
  std::vector<std::unique_ptr<Halves>> halves_{};
  std::vector<std::unique_ptr<LiveFloor>> floors_{};
};

}  // namespace headroom::replay::internal
