// How far past the most that was live pages are created freely, as a share of it.
//
// Narrow at first. A program that asks for memory faster than pages can be moved does little but
// wait for them; where moving takes more than a sixteenth of the time, the cushion widens.
#pragma once

#include <algorithm>
#include <chrono>

namespace headroom::memory::internal {

class Cushion {
 public:
  Cushion(double narrow, double widest) noexcept
      : narrow_(narrow), widest_(std::max(narrow, widest)), fraction_(narrow) {}

  [[nodiscard]] double fraction() const noexcept { return fraction_; }

  // For one request pages were moved from `begin` to `end`, on a clock that may stand still.
  void record_moves(std::chrono::nanoseconds begin, std::chrono::nanoseconds end) noexcept {
    if (!has_begun_) since_ = begin;
    has_begun_ = true;
    ++requests_;
    moving_ += end - begin;
    const std::chrono::duration<double> elapsed = end - since_;
    if (elapsed < kLongEnough || requests_ < kEnoughRequests) return;
    const double share = moving_ / elapsed;
    if (share > kMostOfTime) fraction_ = std::min(widest_, wider(share / kMostOfTime));
    since_ = end;
    moving_ = {};
    requests_ = 0;
  }

  void reset() noexcept { *this = Cushion(narrow_, widest_); }

 private:
  static constexpr double kMostOfTime = 1.0 / 16;
  // One large block may take milliseconds, and says nothing of the next.
  static constexpr std::chrono::milliseconds kLongEnough{100};
  static constexpr int kEnoughRequests = 64;
  static constexpr double kLeast = 0.01;  // what a cushion of nothing begins with

  [[nodiscard]] double wider(double times_too_much) const noexcept {
    return std::max(fraction_, kLeast) * std::max(2.0, times_too_much);
  }

  double narrow_;
  double widest_;
  double fraction_;
  bool has_begun_ = false;
  int requests_ = 0;
  std::chrono::nanoseconds since_{};
  std::chrono::duration<double> moving_{};
};

}  // namespace headroom::memory::internal
