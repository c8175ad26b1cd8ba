// PartPacker: the packing of one part, made better round by round by every means there is.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "headroom/solve/internal/ejection.h"
#include "headroom/solve/internal/exact_search.h"
#include "headroom/solve/internal/part.h"

namespace headroom::solve::internal {

class PartPacker {
 public:
  // `lengths` are the lifetimes of the items in the problem's own time, `hints` their hints.
  PartPacker(const Part& part,
             std::vector<double> lengths,
             std::vector<std::optional<std::uint64_t>> hints,
             std::uint64_t seed);

  // Always makes a packing; a better one as long as it is not over. No other way to begin is tried
  // any more once `is_late`.
  void start(const std::function<bool()>& is_late, const std::function<bool()>& is_over);

  // One round towards `goal` or the lower bound, whichever is higher.
  void improve(std::uint64_t goal, const std::function<bool()>& is_over);

  [[nodiscard]] std::uint64_t height() const noexcept { return height_; }
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return lower_bound_; }
  [[nodiscard]] const Offsets& offsets() const noexcept { return offsets_; }

 private:
  void take(std::uint64_t height, const Offsets& offsets);
  void take(const Offsets& offsets);
  void pack_by_hints();
  void search(std::uint64_t goal, const std::function<bool()>& is_over);
  void repair(std::uint64_t goal, const std::function<bool()>& is_over);
  [[nodiscard]] std::uint64_t search_target(std::uint64_t goal) const;
  [[nodiscard]] std::uint64_t repair_target(std::uint64_t goal) const;
  [[nodiscard]] std::vector<std::uint32_t> next_ranks();

  const Part& part_;
  std::vector<double> lengths_;
  std::vector<std::optional<std::uint64_t>> hints_;
  std::vector<double> crowds_{};  // the highest load that each item sees, of the part's
  std::mt19937_64 random_;
  std::uint64_t seed_;
  std::uint64_t unit_ = 1;  // divides every size and alignment, and so every useful height
  std::uint64_t height_ = UINT64_MAX;
  std::uint64_t lower_bound_;
  Offsets offsets_{};
  std::uint64_t rounds_ = 0;
  std::uint64_t searches_ = 0;
  std::uint64_t failed_repairs_ = 0;  // in a row
  // Two at a time, each on a thread of its own. The answer does not depend on which is the quicker.
  std::array<std::unique_ptr<ExactSearch>, 2> searchers_{};
  std::array<std::unique_ptr<Ejection>, 2> repairers_{};
};

}  // namespace headroom::solve::internal
