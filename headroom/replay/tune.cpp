#include "headroom/replay/tune.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/replay/internal/trial.h"
#include "headroom/replay/internal/tune_space.h"

namespace headroom::replay {

using internal::Setting;
using internal::Space;
using internal::Trial;
using internal::Trials;

namespace {

// What passes the best by this is stopped: first to learn which keys help, then to find a better
// one.
constexpr double kWideMargin = 1.04;
constexpr double kNarrowMargin = 1.002;
// How many settings of a family have their lines tried in a round, and how many rounds there are.
constexpr std::size_t kStarts = 4;
constexpr int kRounds = 8;
constexpr int kIdleRounds = 2;
// Less than this is no reason for another round.
constexpr double kLeastGain = 0.002;
// So many settings are tried with one bound. Independent of the threads, so that the answer is.
constexpr std::size_t kBatch = 16;
// What a search may take, in ops that are run: as many as this many whole replays, at least what
// nobody waits for, at most some ten seconds on one core. A long recording is tried with fewer
// settings.
constexpr std::uint64_t kReplays = 160;
constexpr std::uint64_t kReplaysExpandable = 190;  // more, where there are both families
constexpr std::uint64_t kFewestOps = 2'800'000;
constexpr std::uint64_t kMostOps = 46'000'000;
constexpr std::uint64_t kFewestTrials = 64;

struct Tried {
  Setting setting{};
  Candidate candidate{};
  bool was_stopped = false;
  bool is_start = false;  // its lines were tried
  std::uint64_t ops = 0;
};

// The best first; what was stopped comes last, the later the better.
bool comes_before(const Tried& a, const Tried& b) {
  if (a.was_stopped != b.was_stopped) return b.was_stopped;
  if (a.was_stopped && a.ops != b.ops) return a.ops > b.ops;
  if (!a.was_stopped && is_better(a.candidate, b.candidate)) return true;
  if (!a.was_stopped && is_better(b.candidate, a.candidate)) return false;
  return a.setting < b.setting;
}

// The best with and without expandable segments are looked for apart: not all can use them.
struct Family {
  std::vector<Tried> tried{};

  void sort() { std::ranges::sort(tried, comes_before); }
  [[nodiscard]] const Candidate* best() const {
    return tried.empty() || tried.front().was_stopped ? nullptr : &tried.front().candidate;
  }
  [[nodiscard]] double bound(double margin) const {
    return best() != nullptr && best()->fits ? best()->overhead * margin : HUGE_VAL;
  }
};

// What another round is judged by: how much of the traffic, then in how little.
struct Progress {
  double served = 0;
  double overhead = HUGE_VAL;

  [[nodiscard]] bool is_past(const Progress& before) const {
    if (served != before.served) return served > before.served;
    return served == 1 && overhead < before.overhead * (1 - kLeastGain);
  }
};

Progress progress_of(const Family& family) {
  const Candidate* best = family.best();
  return best == nullptr ? Progress{}
                         : Progress{.served = best->served, .overhead = best->overhead};
}

class Search {
 public:
  Search(std::span<const Program* const> programs, const TuneOptions& options)
      : programs_(programs),
        options_(options),
        trials_(programs, options),
        space_(programs, options, trials_.has_limit()) {
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
    ops_ += trial.ops;
    trial.candidate.conf = programs_[0]->conf;
    trial.candidate.config = programs_[0]->config;
    trial.candidate.parts = parts(space_.setting_of(programs_[0]->config));
    if (trial.candidate.fits && is_question_of_the_recording())
      take_recorded_peaks(trial.candidate);
    return std::move(trial.candidate);
  }

  [[nodiscard]] bool is_question_of_the_recording() const {
    return !options_.limit_bytes && !options_.card_bytes && !options_.version;
  }

  // Here nothing has to be predicted.
  void take_recorded_peaks(Candidate& current) const {
    std::vector<std::uint64_t> peaks;
    double overhead = 0;
    for (const Program* program : programs_) {
      peaks.push_back(internal::recorded_peak(*program));
      if (peaks.back() < program->peak_live) return;  // segments were not recorded
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
    try_all(first, kWideMargin);
    std::vector<std::vector<Setting>> lines;
    for (const Setting& base : bases) {
      lines.push_back(space_.coarse(base));
      append(lines.back(), space_.pairs(base));
    }
    try_all(in_turn(lines), kWideMargin);
    int idle_rounds = 0;
    for (int round = 0; round < kRounds && !is_exhausted(); ++round) {
      const std::array before{progress_of(families_[0]), progress_of(families_[1])};
      lines.clear();
      for (Family& family : families_) append(lines, lines_of_starts(family));
      try_all(in_turn(lines), kNarrowMargin);
      const bool is_better = progress_of(families_[0]).is_past(before[0]) ||
                             progress_of(families_[1]).is_past(before[1]);
      idle_rounds = is_better ? 0 : idle_rounds + 1;
      if (idle_rounds == kIdleRounds) break;
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
  // The best of each kind: the best of all are often variants of one another.
  [[nodiscard]] std::vector<std::vector<Setting>> lines_of_starts(Family& family) const {
    std::vector<std::vector<Setting>> out;
    std::vector<int> kinds;
    for (Tried& one : family.tried) {
      const int kind = keys_used(one.setting);
      if (one.is_start || std::ranges::find(kinds, kind) != kinds.end()) continue;
      kinds.push_back(kind);
      one.is_start = true;
      std::vector<Setting> line = space_.fine(one.setting);
      append(line, space_.coarse(one.setting));
      out.push_back(std::move(line));
      if (out.size() == kStarts) break;
    }
    return out;
  }
  [[nodiscard]] bool is_exhausted() const {
    const std::uint64_t replays = kReplays + (space_.has_expandable() ? kReplaysExpandable : 0);
    const std::uint64_t most = std::clamp(replays * trials_.op_count(), kFewestOps, kMostOps);
    return ops_ > most && tried_ >= kFewestTrials;
  }

  // Those that were not tried yet.
  void try_all(const std::vector<Setting>& settings, double margin) {
    std::vector<Setting> fresh;
    for (const Setting& setting : settings) {
      const Setting one = space_.normal(setting);
      if (seen_.emplace(one, true).second) fresh.push_back(one);
    }
    planned_ += fresh.size();
    for (std::size_t i = 0; i < fresh.size() && !is_exhausted(); i += kBatch) {
      try_batch(std::span(fresh).subspan(i, std::min(kBatch, fresh.size() - i)), margin);
    }
    planned_ = tried_;
  }

  void try_batch(std::span<const Setting> settings, double margin) {
    std::vector<Trial> trials(settings.size());
    const std::array bounds{families_[0].bound(margin), families_[1].bound(margin)};
    std::atomic<std::size_t> next = 0;
    std::atomic<std::uint64_t> done = tried_;
    const auto work = [&](bool is_caller) {
      for (std::size_t i = next++; i < settings.size(); i = next++) {
        trials[i] = try_one(settings[i], bounds[settings[i].is_expandable ? 1 : 0]);
        ++done;
        if (is_caller) tell(done);
      }
    };
    {
      std::vector<std::jthread> helpers;
      const std::size_t count = std::min(static_cast<std::size_t>(threads_), settings.size());
      try {
        for (std::size_t i = 1; i < count; ++i) helpers.emplace_back(work, false);
      } catch (const std::system_error&) {  // those that there are do it all
      }
      work(true);
    }
    for (std::size_t i = 0; i < settings.size(); ++i) {
      ++tried_;
      ops_ += trials[i].ops;
      families_[settings[i].is_expandable ? 1 : 0].tried.push_back(
          {.setting = settings[i],
           .candidate = std::move(trials[i].candidate),
           .was_stopped = trials[i].was_stopped,
           .ops = trials[i].ops});
    }
    for (Family& family : families_) family.sort();
  }

  [[nodiscard]] Trial try_one(const Setting& setting, double most_overhead) const {
    const memory::AllocatorConfig config = space_.config(setting);
    Trial trial = trials_.run(config, most_overhead);
    trial.candidate.conf = config.text;
    trial.candidate.config = config;
    trial.candidate.parts = parts(setting);
    return trial;
  }

  void tell(std::uint64_t done) const {
    if (!options_.progress) return;
    const Candidate* best = families_[0].best();
    const Candidate* other = families_[1].best();
    if (best == nullptr || (other != nullptr && is_better(*other, *best))) best = other;
    options_.progress({.tried = done, .planned = planned_, .best = best});
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
      for (const Tried& one : family.tried) {
        const bool is_current =
            result.is_current_allowed && to_string(one.candidate.config) == recorded;
        if (!one.was_stopped && !is_current) all.push_back(one.candidate);
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
  std::array<Family, 2> families_{};  // without and with expandable segments
  std::map<Setting, bool> seen_;
  std::uint64_t tried_ = 0;
  std::uint64_t planned_ = 0;
  std::uint64_t ops_ = 0;
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
