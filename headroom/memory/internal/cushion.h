// How far past the most that was live pages are created freely, as a share of it.
//
// Narrow at first. A program that asks for memory faster than pages can be moved does little but
// wait for them; where moving takes more than an eighth of the time, the cushion doubles, up to its
// widest.
#pragma once

#include <algorithm>
#include <chrono>

namespace headroom::memory::internal {

class Cushion {
 public:
  Cushion(double narrow, double widest) noexcept
      : narrow_(narrow), widest_(std::max(narrow, widest)), fraction_(narrow) {}

  [[nodiscard]] double fraction() const noexcept { return fraction_; }

  // Pages were moved from `begin` to `end`, on a clock that may stand still.
  void note_moves(std::chrono::nanoseconds begin, std::chrono::nanoseconds end) noexcept {
    if (!has_begun_) since_ = begin;
    has_begun_ = true;
    moving_ += end - begin;
    if (moving_ < kEnoughToTell) return;
    if (moving_ * kShareOfTime > end - since_) fraction_ = std::min(widest_, wider());
    since_ = end;
    moving_ = {};
  }

  void reset() noexcept { *this = Cushion(narrow_, widest_); }

 private:
  static constexpr std::chrono::milliseconds kEnoughToTell{10};
  static constexpr int kShareOfTime = 8;
  static constexpr double kLeast = 0.01;  // what a cushion of nothing grows to

  [[nodiscard]] double wider() const noexcept { return std::max(2 * fraction_, kLeast); }

  double narrow_;
  double widest_;
  double fraction_;
  bool has_begun_ = false;
  std::chrono::nanoseconds since_{};
  std::chrono::nanoseconds moving_{};
};

}  // namespace headroom::memory::internal
