#include "headroom/replay/tune.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/replay/internal/in_order.h"
#include "headroom/replay/internal/trial.h"
#include "headroom/replay/internal/tune_family.h"
#include "headroom/replay/internal/tune_space.h"

namespace headroom::replay {

using internal::Family;
using internal::Setting;
using internal::Space;
using internal::Trial;
using internal::TrialBounds;
using internal::Trials;
using internal::Tried;

namespace {

constexpr int kRounds = 8;
// So many settings may be tried at once. Independent of the threads, so that the answer is.
constexpr std::size_t kAhead = 16;

class Search {
 public:
  Search(std::span<const Program* const> programs, const TuneOptions& options)
      : programs_(programs),
        options_(options),
        trials_(programs, options),
        space_(programs, options, trials_.has_limit()),
        families_{new_family(), new_family()} {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    threads_ = std::max(options.threads > 0 ? options.threads : cores, 1);
  }

  TuneResult run() {
    const auto started = std::chrono::steady_clock::now();
    TuneResult result;
    result.has_limit = trials_.has_limit();
    result.current = run_current();
    search();
    collect(result);
    result.tried = tried_;
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return result;
  }

 private:
  Candidate run_current() {
    Trial trial = trials_.run_as_recorded();
    trial.candidate.conf = programs_[0]->conf;
    trial.candidate.config = programs_[0]->config;
    trial.candidate.parts = parts(space_.setting_of(programs_[0]->config));
    if (!options_.version) take_recorded(trial.candidate);
    return std::move(trial.candidate);
  }

  // A recorded result needs no prediction.
  void take_recorded(Candidate& current) const {
    const bool is_recorded = std::ranges::all_of(programs_, [&](const Program* program) {
      return runs_as_recorded(*program, trials_.bounds());
    });
    if (!is_recorded) return;
    for (const Program* program : programs_) {
      if (program->failures == 0) continue;
      current.fits = false;
      current.served = std::min(current.served,
                                static_cast<double>(*program->first_failure_op) /
                                    static_cast<double>(program->ops.size()));
    }
    const bool has_failures = std::ranges::any_of(
        programs_, [](const Program* program) { return program->failures > 0; });
    if (has_failures) return;
    current.fits = true;
    current.served = 1;
    take_recorded_peaks(current);
  }

  void take_recorded_peaks(Candidate& current) const {
    std::vector<std::uint64_t> peaks;
    double overhead = 0;
    for (const Program* program : programs_) {
      peaks.push_back(program->limit.most_reserved_bytes);
      // Where segments were not recorded, or what was cached at the start was left out.
      if (peaks.back() < program->peak_live || program->starts_with_live_blocks) return;
      overhead += static_cast<double>(peaks.back()) /
                  static_cast<double>(std::max<std::uint64_t>(program->peak_live, 1));
    }
    current.peak_reserved = *std::ranges::max_element(peaks);
    current.peak_reserved_low = current.peak_reserved_high = current.peak_reserved;
    current.overhead = overhead / static_cast<double>(programs_.size());
    current.peaks = std::move(peaks);
  }

  void search() {
    std::vector<Setting> bases{Setting{}};
    if (space_.has_expandable()) bases.push_back({.is_expandable = true});
    std::vector<Setting> first = bases;
    first.push_back(space_.setting_of(programs_[0]->config));
    try_all(first);
    std::vector<std::vector<Setting>> lines;
    for (const Setting& base : bases) {
      lines.push_back(space_.coarse(base));
      append(lines.back(), space_.pairs(base));
    }
    try_all(in_turn(lines));
    for (int round = 0; round < kRounds; ++round) {
      lines.clear();
      for (Family& family : families_) {
        if (family.is_exhausted()) continue;
        for (const Setting& start : family.take_starts()) {
          lines.push_back(space_.fine(start));
          append(lines.back(), space_.coarse(start));
        }
      }
      if (lines.empty()) break;
      try_all(in_turn(lines));
    }
  }

  template <class T>
  static void append(std::vector<T>& to, std::vector<T> from) {
    to.insert(to.end(), from.begin(), from.end());
  }
  // The first of each, the second of each, and on: where the ops run out, none was left out.
  static std::vector<Setting> in_turn(const std::vector<std::vector<Setting>>& lists) {
    std::vector<Setting> out;
    std::size_t longest = 0;
    for (const auto& list : lists) longest = std::max(longest, list.size());
    for (std::size_t i = 0; i < longest; ++i) {
      for (const auto& list : lists) {
        if (i < list.size()) out.push_back(list[i]);
      }
    }
    return out;
  }

  // Those that were not tried yet, of families that are not exhausted.
  void try_all(const std::vector<Setting>& settings) {
    std::vector<Setting> fresh;
    for (const Setting& setting : settings) {
      const Setting one = space_.normal(setting);
      if (seen_.insert(one).second) fresh.push_back(one);
    }
    planned_ += fresh.size();
    std::vector<std::optional<TrialBounds>> bounds(fresh.size());
    std::vector<Trial> trials(fresh.size());
    const auto begin = [&](std::size_t i) {
      const Family& family = family_of(fresh[i]);
      if (!family.is_exhausted()) bounds[i] = family.bounds(parts(fresh[i]));
    };
    const auto work = [&](std::size_t i) {
      if (bounds[i]) trials[i] = try_one(fresh[i], *bounds[i]);
    };
    const auto end = [&](std::size_t i) {
      if (!bounds[i]) return;
      tried_ += trials[i].ops > 0 ? 1 : 0;  // else it was known to be of no interest
      family_of(fresh[i]).add(fresh[i], std::move(trials[i]));
    };
    internal::run_in_order({.count = fresh.size(),
                            .ahead = kAhead,
                            .begin = begin,
                            .work = work,
                            .end = end,
                            .watch = [&] { tell(); }},
                           threads_);
    planned_ = tried_;
    for (Family& family : families_) family.end_round();
  }

  [[nodiscard]] Family new_family() const {
    return {trials_.op_count(), space_.has_large_segments()};
  }
  [[nodiscard]] Family& family_of(const Setting& setting) {
    return families_[setting.is_expandable ? 1 : 0];
  }

  [[nodiscard]] Trial try_one(const Setting& setting, const TrialBounds& bounds) const {
    const memory::AllocatorConfig config = space_.config(setting);
    Trial trial = trials_.run(config, bounds);
    trial.candidate.conf = config.text;
    trial.candidate.config = config;
    trial.candidate.parts = parts(setting);
    return trial;
  }

  void tell() const {
    if (!options_.progress) return;
    const Candidate* best = families_[0].best();
    const Candidate* other = families_[1].best();
    if (best == nullptr || (other != nullptr && is_better(*other, *best))) best = other;
    options_.progress({.tried = tried_, .planned = planned_, .best = best});
  }

  // The simplest of which no other is worth its further parts: what is fitted more closely to one
  // recording does not help the next. `sorted` has the best first, and that one will do.
  static const Candidate& simplest_of_best(const std::vector<Candidate>& sorted) {
    const Candidate* found = &sorted.front();
    for (const Candidate& one : sorted) {
      if (one.parts >= found->parts) continue;
      // Where nothing fits, only what gets furthest is of interest.
      const std::size_t rivals = sorted.front().fits ? sorted.size() : 1;
      const bool will_do =
          std::none_of(sorted.begin(),
                       sorted.begin() + static_cast<std::ptrdiff_t>(rivals),
                       [&](const Candidate& other) { return is_worth(other, one); });
      if (will_do) found = &one;
    }
    return *found;
  }

  // Whether it brings something that `simpler` does not: room, or else more of the traffic. A pair
  // of parts need not bring more than one, further ones do.
  static bool is_worth(const Candidate& one, const Candidate& simpler) {
    if (one.fits != simpler.fits) return one.fits;
    const int more = one.parts - simpler.parts;
    if (!one.fits) return one.served >= simpler.served + kWorthAPart * std::max(more, 1);
    return one.overhead <= simpler.overhead * (1 - kWorthAPart * std::max(more - 1, 1));
  }

  // After `best`, those that bring something against all that is simpler. Whoever cannot use
  // expandable segments is not told that those would be simpler.
  static std::vector<Candidate> worth_showing(const Candidate& best,
                                              const std::vector<Candidate>& sorted) {
    std::vector<Candidate> out{best};
    for (const Candidate& one : sorted) {
      const bool is_idle = std::ranges::any_of(sorted, [&](const Candidate& simpler) {
        if (simpler.config.expandable_segments && !one.config.expandable_segments) return false;
        return one.parts > simpler.parts && !is_worth(one, simpler);
      });
      if (is_better(best, one) && (one.parts <= 1 || !is_idle)) out.push_back(one);
    }
    return out;
  }

  void collect(TuneResult& result) const {
    std::vector<Candidate> all;
    std::string recorded;
    result.is_current_allowed = space_.allows(result.current.config);
    if (result.is_current_allowed) {
      all.push_back(result.current);
      recorded = to_string(result.current.config);
    }
    for (const Family& family : families_) {
      for (const Tried& one : family.tried()) {
        if (one.trial.was_stopped) continue;
        const Candidate& candidate = one.trial.candidate;
        const bool is_current =
            result.is_current_allowed && to_string(candidate.config) == recorded;
        if (!is_current) all.push_back(candidate);
      }
    }
    std::ranges::stable_sort(all, is_better);
    result.best = simplest_of_best(all);
    result.candidates = worth_showing(result.best, all);
    if (!result.best.config.expandable_segments) return;
    std::erase_if(all, [](const Candidate& one) { return one.config.expandable_segments; });
    if (!all.empty()) result.best_without_expandable = simplest_of_best(all);
  }

  std::span<const Program* const> programs_;
  const TuneOptions& options_;
  Trials trials_;
  Space space_;
  int threads_ = 1;
  std::array<Family, 2> families_;  // without and with expandable segments
  std::set<Setting> seen_{};
  std::uint64_t tried_ = 0;  // replayed
  std::uint64_t planned_ = 0;
};

}  // namespace

bool is_better(const Candidate& a, const Candidate& b) noexcept {
  if (a.fits != b.fits) return a.fits;
  if (a.served != b.served) return a.served > b.served;
  if (!a.fits && a.parts != b.parts) return a.parts < b.parts;
  if (a.overhead != b.overhead) return a.overhead < b.overhead;
  if (a.peak_reserved != b.peak_reserved) return a.peak_reserved < b.peak_reserved;
  if (a.driver_us != b.driver_us) return a.driver_us < b.driver_us;
  if (a.retries != b.retries) return a.retries < b.retries;
  return a.parts < b.parts;
}

bool TuneResult::is_current_best() const noexcept {
  if (!is_current_allowed || current.fits != best.fits) return false;
  return current.overhead * (1 - kWorthAPart) <= best.overhead;
}

std::uint64_t TuneResult::saved_bytes() const noexcept {
  return current.peak_reserved - std::min(current.peak_reserved, best.peak_reserved);
}

TuneResult tune(std::span<const Program* const> programs, const TuneOptions& options) {
  if (programs.empty()) throw InvalidArgument("tune: there is no recording to replay");
  return Search(programs, options).run();
}

}  // namespace headroom::replay
