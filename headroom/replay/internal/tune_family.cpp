#include "headroom/replay/internal/tune_family.h"

#include <algorithm>
#include <utility>

namespace headroom::replay::internal {

namespace {

// How many settings have their lines tried in a round.
constexpr std::size_t kStarts = 4;
// Another setting has to be better by this to be of interest, and one with more parts by that.
constexpr double kLeastGain = 0.0005;
constexpr double kLeastGainOfAPart = 0.001;
// A round that brings less is idle; the search ends after this number of idle rounds.
constexpr double kLeastGainOfARound = 0.002;
constexpr int kIdleRounds = 2;
// The search goes on for as long as so many whole replays take since it last got better by this: at
// least for what nobody waits for, at most for some seconds on one core. Segments of every size go
// with every other key, and are given more.
constexpr double kMuch = 0.005;
constexpr std::uint64_t kPatience = 64;
constexpr std::uint64_t kLeastPatience = 700'000;
constexpr std::uint64_t kMostPatience = 12'000'000;
constexpr std::size_t kFewestTrials = 32;
// The cost of making and ending an allocator, in ops.
constexpr std::uint64_t kOpsOfAReplay = 2'000;

bool comes_before(const Tried& a, const Tried& b) {
  if (a.trial.was_stopped != b.trial.was_stopped) return b.trial.was_stopped;
  const Candidate& one = a.trial.candidate;
  const Candidate& other = b.trial.candidate;
  if (a.trial.was_stopped) {
    if (a.trial.ops != b.trial.ops) return a.trial.ops > b.trial.ops;
    if (one.overhead != other.overhead) return one.overhead < other.overhead;
  } else {
    if (is_better(one, other)) return true;
    if (is_better(other, one)) return false;
  }
  return a.setting < b.setting;
}

}  // namespace

Family::Family(std::uint64_t op_count, bool has_large_segments) {
  const std::uint64_t patience = std::clamp(kPatience * op_count, kLeastPatience, kMostPatience);
  patience_ = has_large_segments ? patience / 10 * 14 : patience;
}

bool Family::Mark::is_past(const Mark& before, double least_gain) const noexcept {
  if (served != before.served) return served > before.served;
  return served == 1 && overhead < before.overhead * (1 - least_gain);
}

Family::Mark Family::mark() const noexcept {
  return best() == nullptr ? Mark{} : Mark{.served = best()->served, .overhead = best()->overhead};
}

const Candidate* Family::best() const noexcept {
  if (tried_.empty() || tried_[best_].trial.was_stopped) return nullptr;
  return &tried_[best_].trial.candidate;
}

void Family::add(const Setting& setting, Trial trial) {
  if (trial.ops > 0) cost_ += trial.ops + kOpsOfAReplay;
  tried_.push_back({.setting = setting, .trial = std::move(trial)});
  if (comes_before(tried_.back(), tried_[best_])) best_ = tried_.size() - 1;
  if (const Mark now = mark(); now.is_past(gained_, kMuch)) {
    gained_ = now;
    gained_at_ = cost_;
  }
}

void Family::end_round() {
  std::ranges::sort(tried_, comes_before);
  best_ = 0;
  idle_rounds_ = mark().is_past(round_, kLeastGainOfARound) ? 0 : idle_rounds_ + 1;
  round_ = mark();
}

TrialBounds Family::bounds(int parts) const {
  if (best() == nullptr) return {};
  if (!best()->fits) return {.least_served = best()->served};
  const int fewer = best()->parts - parts;
  double share = 1 - (fewer == 0 ? kLeastGain : kLeastGainOfAPart);
  // One that is simpler may be the answer although it takes a little more.
  if (fewer > 0) share = 1 / (1 - kWorthAPart * std::max(fewer - 1, 1));
  return {.most_overhead = best()->overhead * share, .least_served = 1};
}

bool Family::is_exhausted() const noexcept {
  if (idle_rounds_ >= kIdleRounds) return true;
  return cost_ > gained_at_ + patience_ && tried_.size() >= kFewestTrials;
}

std::vector<Setting> Family::take_starts() {
  std::vector<Setting> out;
  std::vector<int> kinds;
  for (Tried& one : tried_) {
    const int kind = keys_used(one.setting);
    if (one.is_start || std::ranges::find(kinds, kind) != kinds.end()) continue;
    kinds.push_back(kind);
    one.is_start = true;
    out.push_back(one.setting);
    if (out.size() == kStarts) break;
  }
  return out;
}

}  // namespace headroom::replay::internal
