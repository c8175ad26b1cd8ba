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

// What passes the best by this is not followed: no small change makes up for it.
constexpr double kMargin = 1.04;
// How many have their neighbours tried, and how often.
constexpr std::size_t kSeeds = 3;
constexpr int kRounds = 4;
// So many settings are tried with one bound. Independent of the threads, so that the answer is.
constexpr std::size_t kBatch = 16;
// About ten seconds on one core; a long recording is tried with fewer settings.
constexpr std::uint64_t kMostOps = 50'000'000;
constexpr std::uint64_t kFewestTrials = 64;

// The best with and without expandable segments are looked for apart: not all can use them.
struct Family {
  std::vector<std::pair<Setting, Candidate>> finished{};
  const Candidate* best = nullptr;

  void add(const Setting& setting, Candidate candidate) {
    finished.emplace_back(setting, std::move(candidate));
    std::ranges::sort(finished, [](const auto& a, const auto& b) {
      if (is_better(a.second, b.second)) return true;
      return !is_better(b.second, a.second) && a.first < b.first;
    });
    best = &finished.front().second;
  }
  [[nodiscard]] double bound() const {
    return best != nullptr && best->fits ? best->overhead * kMargin : HUGE_VAL;
  }
};

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
    std::vector<Setting> first{{}, space_.setting_of(programs_[0]->config)};
    std::vector<Setting> bases{Setting{}};
    if (space_.has_expandable()) bases.push_back({.is_expandable = true});
    first.push_back(bases.back());
    try_all(first);
    std::vector<Setting> coarse;
    for (const Setting& base : bases) append(coarse, space_.grid(base));
    alternate(coarse, bases.size());
    try_all(coarse);
    for (int round = 0; round < kRounds && !is_exhausted(); ++round) {
      std::vector<Setting> finer;
      for (const Family& family : families_) append(finer, neighbours(family));
      const std::array before{overhead(families_[0]), overhead(families_[1])};
      try_all(finer);
      const bool improved = overhead(families_[0]) < before[0] * (1 - kWorthAPart) ||
                            overhead(families_[1]) < before[1] * (1 - kWorthAPart);
      if (!improved) break;
    }
  }

  static void append(std::vector<Setting>& to, std::vector<Setting> from) {
    to.insert(to.end(), from.begin(), from.end());
  }
  // Of `parts` equal parts the first of each, the second of each, and on: where the ops run out,
  // no part was left out.
  static void alternate(std::vector<Setting>& settings, std::size_t parts) {
    std::vector<Setting> out;
    const std::size_t length = settings.size() / parts;
    for (std::size_t i = 0; i < length; ++i) {
      for (std::size_t part = 0; part < parts; ++part) {
        out.push_back(settings[part * length + i]);
      }
    }
    settings = std::move(out);
  }
  static double overhead(const Family& family) {
    return family.best != nullptr ? family.best->overhead : HUGE_VAL;
  }
  // Of the best of each kind: the best of all are often variants of one another.
  [[nodiscard]] std::vector<Setting> neighbours(const Family& family) const {
    std::vector<Setting> out;
    std::vector<int> kinds;
    for (const auto& [setting, candidate] : family.finished) {
      const int kind = keys_used(setting);
      if (std::ranges::find(kinds, kind) != kinds.end()) continue;
      kinds.push_back(kind);
      append(out, space_.near(setting));
      if (kinds.size() == kSeeds) break;
    }
    return out;
  }
  [[nodiscard]] bool is_exhausted() const { return ops_ > kMostOps && tried_ >= kFewestTrials; }

  // Those that were not tried yet.
  void try_all(const std::vector<Setting>& settings) {
    std::vector<Setting> fresh;
    for (const Setting& setting : settings) {
      const Setting one = space_.normal(setting);
      if (seen_.emplace(one, true).second) fresh.push_back(one);
    }
    planned_ += fresh.size();
    for (std::size_t i = 0; i < fresh.size() && !is_exhausted(); i += kBatch) {
      try_batch(std::span(fresh).subspan(i, std::min(kBatch, fresh.size() - i)));
    }
    planned_ = tried_;
  }

  void try_batch(std::span<const Setting> settings) {
    std::vector<Trial> trials(settings.size());
    const std::array bounds{families_[0].bound(), families_[1].bound()};
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
      if (trials[i].was_stopped) continue;
      families_[settings[i].is_expandable ? 1 : 0].add(settings[i], std::move(trials[i].candidate));
    }
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
    const Candidate* best = families_[0].best;
    const Candidate* other = families_[1].best;
    if (best == nullptr || (other != nullptr && is_better(*other, *best))) best = other;
    options_.progress({.tried = done, .planned = planned_, .best = best});
  }

  // Every further part must earn its keep against all that is simpler. Whoever cannot use
  // expandable segments is not told that those would be simpler.
  static void drop_idle_parts(std::vector<Candidate>& all) {
    // Not many are left: those that were stopped early are not among them.
    const std::vector<Candidate> simple = all;
    std::erase_if(all, [&](const Candidate& one) {
      return one.parts > 1 && std::ranges::any_of(simple, [&](const Candidate& simpler) {
               if (simpler.config.expandable_segments && !one.config.expandable_segments) {
                 return false;
               }
               return one.parts > simpler.parts && !is_worth(one, simpler);
             });
    });
  }

  // Whether it brings something for the parts that it has more: room, or else more of the traffic.
  static bool is_worth(const Candidate& one, const Candidate& simpler) {
    if (one.fits != simpler.fits) return one.fits;
    const double least = kWorthAPart * (one.parts - simpler.parts);
    if (!one.fits) return one.served >= simpler.served + least;
    return one.overhead <= simpler.overhead * (1 - least);
  }

  void collect(TuneResult& result) const {
    std::vector<Candidate> all{result.current};
    const std::string recorded = to_string(result.current.config);
    for (const Family& family : families_) {
      for (const auto& [setting, candidate] : family.finished) {
        if (to_string(candidate.config) != recorded) all.push_back(candidate);
      }
    }
    drop_idle_parts(all);
    std::ranges::stable_sort(all, is_better);
    result.candidates = std::move(all);
    result.best = result.candidates.front();
    if (!result.best.config.expandable_segments) return;
    const auto plain = std::ranges::find_if(
        result.candidates, [](const Candidate& one) { return !one.config.expandable_segments; });
    if (plain != result.candidates.end()) result.best_without_expandable = *plain;
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
  if (current.fits != best.fits) return false;
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
