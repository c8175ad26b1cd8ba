#include "benchmarks/alloc/bench_alloc.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::duration<double, std::nano>;

// One pair after another of the same size, or random blocks of a set replaced by new ones.
struct Workload {
  std::string name;
  std::uint64_t low_bytes = 0;
  std::uint64_t high_bytes = 0;
  std::size_t live = 0;   // blocks held meanwhile; 0 is the hot pair
  double share = 1;       // of the pairs asked for: long cases run fewer
  bool is_mixed = false;  // half below 1 MiB, half above

  [[nodiscard]] bool is_churn() const { return live > 0; }
};

std::vector<Workload> workloads() {
  return {{.name = "hot 512B", .low_bytes = 512, .high_bytes = 512},
          {.name = "hot 4KiB", .low_bytes = 4_KiB, .high_bytes = 4_KiB},
          {.name = "hot 64KiB", .low_bytes = 64_KiB, .high_bytes = 64_KiB},
          {.name = "hot 64MiB", .low_bytes = 64_MiB, .high_bytes = 64_MiB},
          {.name = "churn small (to 1MiB)", .low_bytes = 1, .high_bytes = 1_MiB, .live = 500},
          {.name = "churn large (1 to 64MiB)",
           .low_bytes = 1_MiB + 1,
           .high_bytes = 64_MiB,
           .live = 100,
           .share = 0.5},
          {.name = "churn mixed",
           .low_bytes = 1,
           .high_bytes = 64_MiB,
           .live = 200,
           .share = 0.5,
           .is_mixed = true}};
}

// The contenders share the device, and each keeps what it has freed: a working set of 1/32 of it
// leaves room for all of them and for their fragmentation.
std::size_t live_that_fit(const Workload& workload, int threads, std::uint64_t room_bytes) {
  constexpr std::size_t kLeast = 4;
  if (!workload.is_churn()) return 0;
  const std::uint64_t typical = (workload.low_bytes + workload.high_bytes) / 2;
  const std::uint64_t fitting = room_bytes / 32 / typical / static_cast<std::uint64_t>(threads);
  return std::min<std::uint64_t>(workload.live, std::max<std::uint64_t>(fitting, kLeast));
}

struct Step {
  std::uint32_t slot = 0;
  std::uint64_t size_bytes = 0;
};

// Drawn before the clock starts, the same for every contender. Not more than a cache holds: they
// are done over and over.
std::vector<Step> draw_steps(const Workload& workload, std::uint64_t pairs, unsigned seed) {
  constexpr std::uint64_t kMost = 1 << 16;
  const std::uint64_t count = workload.is_churn() ? std::min(pairs, kMost) : 1;
  std::mt19937_64 random(seed);
  const auto size = [&] {
    std::uint64_t low = workload.low_bytes;
    std::uint64_t high = workload.high_bytes;
    if (workload.is_mixed) (random() % 2 == 0 ? high : low) = 1_MiB;
    return low + random() % (high - low + 1);
  };
  std::vector<Step> steps(count);
  for (Step& step : steps) {
    step.slot = static_cast<std::uint32_t>(random());
    step.size_bytes = size();
  }
  return steps;
}

// Of each allocator, in a round.
constexpr int kTurns = 3;

// How much of a case one contender does in a turn.
struct Amount {
  std::size_t pairs = 0;  // of each thread
  std::size_t live = 0;
};

// Shared by the threads of a turn. They begin together, and wait for that awake: to be woken takes
// far longer than a pair and would be part of what is measured. They end together too: else
// all would wait for one that the machine has kept from running.
class Race {
 public:
  explicit Race(std::size_t threads) noexcept : missing_(threads) {}

  void arrive_and_wait() noexcept {
    missing_.fetch_sub(1);
    while (missing_.load(std::memory_order_acquire) != 0 && !is_over()) std::this_thread::yield();
  }
  void finish() noexcept { is_over_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> missing_;
  alignas(64) std::atomic<bool> is_over_{false};
};

// One thread of a turn.
class alignas(64) Lane {
 public:
  Lane(Contender& contender, std::span<const Step> steps, Amount amount)
      : contender_(&contender), steps_(steps), amount_(amount) {}

  // An error is kept: an exception may not leave a thread, nor may one be waited for that
  // does not come.
  void run(Race& race) noexcept {
    attempt([&] { prepare(); });
    race.arrive_and_wait();
    begin_ = Clock::now();
    if (!error_) attempt([&] { amount_.live == 0 ? run_hot(race) : run_churn(race); });
    end_ = Clock::now();
    race.finish();
    attempt([&] {
      for (const std::uint64_t address : held_) {
        if (address != 0) contender_->free(address);
      }
    });
  }

  [[nodiscard]] std::size_t done() const { return done_; }
  [[nodiscard]] Clock::time_point begin() const { return begin_; }
  [[nodiscard]] Clock::time_point end() const { return end_; }
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

 private:
  template <class Body>
  void attempt(Body&& body) noexcept {
    try {
      body();
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
  }

  void prepare() {
    contender_->enter_thread();
    held_.reserve(amount_.live);
    // A new thread's first request may make what the thread keeps from then on.
    if (amount_.live == 0) contender_->free(contender_->allocate(steps_.front().size_bytes));
    for (std::size_t i = 0; i < amount_.live; ++i) {
      held_.push_back(contender_->allocate(steps_[i % steps_.size()].size_bytes));
    }
  }
  void run_hot(const Race& race) {
    const std::uint64_t size_bytes = steps_.front().size_bytes;
    for (; done_ < amount_.pairs && !race.is_over(); ++done_) {
      contender_->free(contender_->allocate(size_bytes));
    }
  }
  void run_churn(const Race& race) {
    for (std::size_t next = 0; done_ < amount_.pairs && !race.is_over(); ++done_) {
      const Step& step = steps_[next];
      if (++next == steps_.size()) next = 0;
      std::uint64_t& place = held_[step.slot % amount_.live];
      contender_->free(std::exchange(place, 0));  // not once more, should the next line throw
      place = contender_->allocate(step.size_bytes);
    }
  }

  Contender* contender_;
  std::span<const Step> steps_;
  Amount amount_;
  std::size_t done_ = 0;
  std::vector<std::uint64_t> held_{};
  Clock::time_point begin_{};
  Clock::time_point end_{};
  std::exception_ptr error_{};
};

// Nanoseconds a pair: wall time from the first thread's start to the last one's end, over all the
// pairs that were done until the first thread had done its part. The threads read the clock
// themselves: whoever waits for them may wake up late. The first is the caller: PyTorch takes three
// times as long in a thread that is not the program's first, and one thread alone should be
// measured where programs allocate.
double measure(Contender& contender, const std::vector<std::vector<Step>>& steps, Amount amount) {
  Race race(steps.size());
  std::vector<Lane> lanes;
  lanes.reserve(steps.size());
  for (const std::vector<Step>& own : steps) lanes.emplace_back(contender, own, amount);
  {
    std::vector<std::jthread> workers;
    workers.reserve(lanes.size());
    try {
      for (Lane& lane : std::span(lanes).subspan(1)) {
        workers.emplace_back([&lane, &race] { lane.run(race); });
      }
    } catch (...) {
      race.finish();  // for those that wait for the rest
      throw;
    }
    lanes.front().run(race);
  }
  std::size_t pairs = 0;
  for (const Lane& lane : lanes) {
    if (lane.error()) std::rethrow_exception(lane.error());
    pairs += lane.done();
  }
  const auto begin = std::ranges::min(lanes, {}, &Lane::begin).begin();
  const auto end = std::ranges::max(lanes, {}, &Lane::end).end();
  return Nanoseconds(end - begin).count() / static_cast<double>(pairs);
}

// Alone, for as long as a round may take: an allocator may learn what it is asked for.
void warm_up(Contender& contender,
             const std::vector<std::vector<Step>>& steps,
             Amount amount,
             std::uint64_t turn_ms) {
  const auto end = Clock::now() + kTurns * std::chrono::milliseconds(turn_ms);
  do {
    (void)measure(contender, steps, amount);
  } while (Clock::now() < end);
}

// Tried with a few pairs, so that what the first has to fetch does not count, and then with more
// and more until that takes a while; then as many as the time allows: a call of the driver takes as
// long as a thousand of a cache.
Amount affordable(Contender& contender,
                  const std::vector<std::vector<Step>>& steps,
                  Amount wanted,
                  std::uint64_t turn_ms) {
  constexpr Amount kTrial{.pairs = 32, .live = 8};
  const double turn_ns = static_cast<double>(turn_ms) * 1e6;
  const auto threads = static_cast<double>(steps.size());
  const auto least = Amount{.pairs = std::min(wanted.pairs, kTrial.pairs),
                            .live = std::min(wanted.live, kTrial.live)};
  (void)measure(contender, steps, least);
  Amount trial = least;
  double pair_ns = std::max(measure(contender, steps, trial), 1.0);
  while (trial.pairs < wanted.pairs &&
         pair_ns * threads * static_cast<double>(trial.pairs) < turn_ns / 50) {
    trial.pairs = std::min(wanted.pairs, trial.pairs * 8);
    pair_ns = std::max(measure(contender, steps, trial), 1.0);
  }
  const auto count = static_cast<std::size_t>(turn_ns / pair_ns / threads);
  return {.pairs = std::clamp(count, least.pairs, wanted.pairs),
          .live = std::clamp(count, least.live, wanted.live)};
}

// A workload on `threads` threads: ready to be measured, round by round.
class Case {
 public:
  Case(const Workload& workload,
       int threads,
       const AllocBenchOptions& options,
       const Contenders& contenders)
      : name_(workload.name),
        threads_(threads),
        is_churn_(workload.is_churn()),
        field_(contenders),
        samples_(contenders.all.size()),
        reserved_(contenders.all.size()) {
    const auto pairs = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(static_cast<double>(options.pairs) * workload.share));
    for (int t = 0; t < threads; ++t) {
      steps_.push_back(draw_steps(workload, pairs, static_cast<unsigned>(t + 1)));
    }
    const Amount wanted{.pairs = pairs,
                        .live = live_that_fit(workload, threads, contenders.room_bytes)};
    for (const auto& contender : field_.all) {
      contender->begin_case();
      const Amount cold = affordable(*contender, steps_, wanted, options.turn_ms);
      warm_up(*contender, steps_, cold, options.turn_ms);
      amounts_.push_back(affordable(*contender, steps_, wanted, options.turn_ms));
    }
  }

  // The quickest of three turns: what else the machine does only ever adds. In each turn every
  // contender once, so that it hits all alike.
  void measure_round() {
    std::vector<double> now(field_.all.size(), std::numeric_limits<double>::infinity());
    for (int turn = 0; turn < kTurns; ++turn) {
      for (std::size_t s = 0; s < now.size(); ++s) {
        now[s] = std::min(now[s], measure(*field_.all[s], steps_, amounts_[s]));
      }
    }
    for (std::size_t s = 0; s < now.size(); ++s) samples_[s].push_back(now[s]);
  }

  // Of churn, where it says something.
  void note_reserved() {
    for (std::size_t s = 0; s < samples_.size(); ++s) {
      if (is_churn_) reserved_[s] = field_.all[s]->reserved_over_live();
    }
  }

  [[nodiscard]] int threads() const { return threads_; }

  // `one`: the same on one thread, or null where that is this one or was not measured.
  [[nodiscard]] AllocCase result(const Case* one) const {
    AllocCase result{.name = name_, .threads = threads_};
    for (std::size_t s = 0; s < samples_.size(); ++s) {
      AllocResult& entry = result.results.emplace_back();
      entry.allocator = field_.all[s]->name();
      entry.pair_ns = spread_of(samples_[s]);
      entry.to_baseline = spread_of(quotients(samples_[s], samples_.back()));
      entry.pairs = amounts_[s].pairs;
      if (one != nullptr) {
        entry.scaling = spread_of(quotients(one->samples_[s], samples_[s])).median;
      }
      entry.reserved_over_live = reserved_[s];
    }
    return result;
  }

 private:
  static std::vector<double> quotients(const std::vector<double>& over,
                                       const std::vector<double>& under) {
    std::vector<double> out(over.size());
    std::ranges::transform(over, under, out.begin(), std::divides<>{});
    return out;
  }

  std::string name_;
  int threads_;
  bool is_churn_;
  const Contenders& field_;
  std::vector<std::vector<Step>> steps_{};
  std::vector<Amount> amounts_{};
  std::vector<std::vector<double>> samples_;  // of each contender, by round
  std::vector<std::optional<double>> reserved_;
};

// Round by round each of them once, so that what is compared was measured side by side.
void measure_rounds(std::span<Case> cases, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    for (Case& entry : cases) entry.measure_round();
  }
  for (Case& entry : cases) entry.note_reserved();
}

std::vector<AllocCase> run_workload(const Workload& workload,
                                    const AllocBenchOptions& options,
                                    const Contenders& contenders,
                                    const Progress& progress) {
  std::vector<Case> cases;
  for (const int threads : options.threads) {
    const char* unit = threads == 1 ? "thread" : "threads";
    progress(fmt::format("measuring {}, {} {}", workload.name, threads, unit));
    cases.emplace_back(workload, threads, options, contenders);
    // How much is reserved for churn depends on what was there before: one after the other.
    if (workload.is_churn()) measure_rounds(std::span(cases).last(1), options.rounds);
  }
  if (!workload.is_churn()) measure_rounds(cases, options.rounds);

  const auto one = std::ranges::find(cases, 1, &Case::threads);
  std::vector<AllocCase> results;
  for (const Case& entry : cases) {
    const bool has_one = one != cases.end() && entry.threads() != 1;
    results.push_back(entry.result(has_one ? &*one : nullptr));
  }
  return results;
}

}  // namespace

AllocBench bench_alloc(const AllocBenchOptions& options,
                       const Contenders& contenders,
                       const Progress& progress) {
  AllocBench bench{.device = contenders.device,
                   .baseline = contenders.all.back()->name(),
                   .notes = contenders.notes};
  for (const Workload& workload : workloads()) {
    if (workload.name.find(options.filter) == std::string::npos) continue;
    std::ranges::move(run_workload(workload, options, contenders, progress),
                      std::back_inserter(bench.cases));
  }
  progress("");
  return bench;
}

}  // namespace headroom::cli
