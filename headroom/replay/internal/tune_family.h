// The settings that tune() tried with expandable segments, or those without. Each family is
// searched for itself: not everybody can use expandable segments.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headroom/replay/internal/trial.h"
#include "headroom/replay/internal/tune_space.h"
#include "headroom/replay/tune.h"

namespace headroom::replay::internal {

struct Tried {
  Setting setting{};
  Trial trial{};
  bool is_start = false;  // its lines were tried
};

class Family {
 public:
  // The ops are those of all programs; the size of large segments is searched, or is not.
  Family(std::uint64_t op_count, bool has_large_segments);

  [[nodiscard]] const Candidate* best() const noexcept;
  [[nodiscard]] std::span<const Tried> tried() const noexcept { return tried_; }

  void add(const Setting& setting, Trial trial);
  // Sorts: the best first; what was stopped comes last, the later the better.
  void end_round();

  // The bounds that a setting of `parts` parts must keep to be worth a full replay.
  [[nodiscard]] TrialBounds bounds(int parts) const;
  // Whether further replays are unlikely to find something better.
  [[nodiscard]] bool is_exhausted() const noexcept;
  // Where to go on: the best of each kind, since the best of all are often variants of one another.
  // Each is given once.
  [[nodiscard]] std::vector<Setting> take_starts();

 private:
  // How good the best is: how much of the traffic, then in how little.
  struct Mark {
    double served = 0;
    double overhead = HUGE_VAL;

    [[nodiscard]] bool is_past(const Mark& before, double least_gain) const noexcept;
  };
  [[nodiscard]] Mark mark() const noexcept;

  std::uint64_t patience_ = 0;
  std::vector<Tried> tried_{};
  std::size_t best_ = 0;    // in tried_
  std::uint64_t cost_ = 0;  // of what was tried, in ops
  // At which cost it last got much better, and how good it was then.
  std::uint64_t gained_at_ = 0;
  Mark gained_{};
  // How many rounds brought next to nothing, and how good it was after the last.
  int idle_rounds_ = 0;
  Mark round_{};
};

}  // namespace headroom::replay::internal
