// PlanGrid: the steps that a page has a plan of: every combination of its controls' values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "headroom/train/plan.h"

namespace headroom::cli {

// A control of the page: the values that it has, and the one that was asked for.
struct PlanAxis {
  std::string name{};                  // "batch"
  std::vector<std::int64_t> values{};  // or the place in a list of words
  std::int64_t asked = 0;
};

class PlanGrid {
 public:
  // Around `plan`: halves and doubles of its depth and batch, halves of the model's sequence, both
  // common precisions, each size of optimiser state, each checkpoint mode; no axis for what the
  // model does not have. Numbers whose plans take longest are left out until the rest is within
  // kMostWork, and words after them; what was asked for always stays.
  explicit PlanGrid(const train::Plan& plan);

  [[nodiscard]] const std::vector<PlanAxis>& axes() const noexcept { return axes_; }
  [[nodiscard]] std::size_t size() const noexcept;
  // The axis that comes last in axes() moves first.
  [[nodiscard]] train::StepConfig config_at(std::size_t index) const;
  // The name of a value of the axis: "bf16", "1024".
  [[nodiscard]] std::string word(const PlanAxis& axis, std::int64_t value) const;
  // Allocations and frees that planning all of them is expected to take.
  [[nodiscard]] double work() const;

  // About 40 seconds of one core; planning takes about 3 microseconds per allocation or free.
  static constexpr double kMostWork = 16e6;

 private:
  [[nodiscard]] double work_without(const PlanAxis* axis, std::int64_t value) const;
  bool drop_heaviest(bool of_words);

  train::StepConfig asked_;
  std::string adam_;  // "adam" or "adamw", which have the same state
  double events_work_ = 0;
  double pages_work_ = 0;
  std::vector<PlanAxis> axes_{};
};

}  // namespace headroom::cli
