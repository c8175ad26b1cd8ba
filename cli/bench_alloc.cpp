#include "cli/bench_alloc.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
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
  if (workload.live == 0) return 0;
  const std::uint64_t typical = (workload.low_bytes + workload.high_bytes) / 2;
  const std::uint64_t fitting = room_bytes / 32 / typical / static_cast<std::uint64_t>(threads);
  return std::min<std::uint64_t>(workload.live, std::max<std::uint64_t>(fitting, kLeast));
}

struct Step {
  std::uint32_t slot = 0;
  std::uint64_t size_bytes = 0;
};

// Drawn before the clock starts, the same for every subject.
std::vector<Step> draw_steps(const Workload& workload, std::uint64_t pairs, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto size = [&] {
    std::uint64_t low = workload.low_bytes;
    std::uint64_t high = workload.high_bytes;
    if (workload.is_mixed) (random() % 2 == 0 ? high : low) = 1_MiB;
    return low + random() % (high - low + 1);
  };
  std::vector<Step> steps(pairs);
  for (Step& step : steps) {
    step.slot = static_cast<std::uint32_t>(random());
    step.size_bytes = size();
  }
  return steps;
}

// How much of a case one subject does in a round.
struct Amount {
  std::size_t pairs = 0;  // of each thread
  std::size_t live = 0;
};

// Where the threads of a round wait for one another: awake, since to be woken takes far longer than
// a pair and would be part of what is measured.
class StartLine {
 public:
  explicit StartLine(std::size_t threads) noexcept : missing_(threads) {}

  void arrive_and_wait() noexcept {
    missing_.fetch_sub(1);
    while (missing_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  }

 private:
  std::atomic<std::size_t> missing_;
};

// One thread of a round.
class Lane {
 public:
  Lane(Subject& subject, std::span<const Step> steps, std::size_t live)
      : subject_(&subject), steps_(steps), live_(live) {}

  // What goes wrong is kept: an exception may not leave a thread, nor may one be waited for that
  // does not come.
  void run(StartLine& start) noexcept {
    attempt([&] { prepare(); });
    start.arrive_and_wait();
    begin_ = Clock::now();
    if (!error_) attempt([&] { live_ == 0 ? run_hot() : run_churn(); });
    end_ = Clock::now();
    attempt([&] {
      for (const std::uint64_t address : held_) {
        if (address != 0) subject_->free(address);
      }
    });
  }

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
    subject_->enter_thread();
    held_.reserve(live_);
    // A new thread's first request may make what the thread keeps from then on.
    if (live_ == 0) subject_->free(subject_->allocate(steps_.front().size_bytes));
    for (std::size_t i = 0; i < live_; ++i) {
      held_.push_back(subject_->allocate(steps_[i % steps_.size()].size_bytes));
    }
  }
  void run_hot() {
    for (const Step& step : steps_) subject_->free(subject_->allocate(step.size_bytes));
  }
  void run_churn() {
    for (const Step& step : steps_) {
      std::uint64_t& place = held_[step.slot % live_];
      subject_->free(std::exchange(place, 0));  // not once more, should the next line throw
      place = subject_->allocate(step.size_bytes);
    }
  }

  Subject* subject_;
  std::span<const Step> steps_;
  std::size_t live_;
  std::vector<std::uint64_t> held_{};
  Clock::time_point begin_{};
  Clock::time_point end_{};
  std::exception_ptr error_{};
};

// Nanoseconds a pair: wall time from the first thread's start to the last one's end, over all
// pairs. The threads read the clock themselves: whoever waits for them may wake up late. The first
// is the caller: PyTorch takes three times as long in a thread that is not the program's first,
// and one thread alone should be measured where programs allocate.
double measure(Subject& subject, const std::vector<std::vector<Step>>& steps, Amount amount) {
  StartLine start(steps.size());
  std::vector<Lane> lanes;
  lanes.reserve(steps.size());
  for (const std::vector<Step>& own : steps) {
    lanes.emplace_back(subject, std::span(own).first(amount.pairs), amount.live);
  }
  {
    std::vector<std::jthread> workers;
    workers.reserve(lanes.size());
    for (Lane& lane : std::span(lanes).subspan(1)) {
      workers.emplace_back([&lane, &start] { lane.run(start); });
    }
    lanes.front().run(start);
  }
  for (const Lane& lane : lanes) {
    if (lane.error()) std::rethrow_exception(lane.error());
  }
  const auto begin = std::ranges::min(lanes, {}, &Lane::begin).begin();
  const auto end = std::ranges::max(lanes, {}, &Lane::end).end();
  const Nanoseconds elapsed = end - begin;
  return elapsed.count() / static_cast<double>(steps.size() * amount.pairs);
}

// Alone, for as long as a round may take: an allocator may learn what it is asked for.
void warm_up(Subject& subject,
             const std::vector<std::vector<Step>>& steps,
             Amount amount,
             std::uint64_t round_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(round_ms);
  do {
    (void)measure(subject, steps, amount);
  } while (Clock::now() < end);
}

// Tried with a few pairs, so that what the first has to fetch does not count, and then with more
// and more until that takes a while; then as many as the time allows: a call of the driver takes as
// long as a thousand of a cache.
Amount affordable(Subject& subject,
                  const std::vector<std::vector<Step>>& steps,
                  Amount wanted,
                  std::uint64_t round_ms) {
  constexpr Amount kTrial{.pairs = 32, .live = 8};
  const double round_ns = static_cast<double>(round_ms) * 1e6;
  const auto threads = static_cast<double>(steps.size());
  const auto least = Amount{.pairs = std::min(wanted.pairs, kTrial.pairs),
                            .live = std::min(wanted.live, kTrial.live)};
  (void)measure(subject, steps, least);
  Amount trial = least;
  double pair_ns = std::max(measure(subject, steps, trial), 1.0);
  while (trial.pairs < wanted.pairs &&
         pair_ns * threads * static_cast<double>(trial.pairs) < round_ns / 50) {
    trial.pairs = std::min(wanted.pairs, trial.pairs * 8);
    pair_ns = std::max(measure(subject, steps, trial), 1.0);
  }
  const auto count = static_cast<std::size_t>(round_ns / pair_ns / threads);
  return {.pairs = std::clamp(count, least.pairs, wanted.pairs),
          .live = std::clamp(count, least.live, wanted.live)};
}

class Case {
 public:
  Case(const Workload& workload,
       int threads,
       const AllocBenchOptions& options,
       const Contenders& contenders)
      : name_(workload.name),
        threads_(threads),
        rounds_(options.rounds),
        is_churn_(workload.live > 0),
        field_(contenders) {
    const auto pairs = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(static_cast<double>(options.pairs) * workload.share));
    for (int t = 0; t < threads; ++t) {
      steps_.push_back(draw_steps(workload, pairs, static_cast<unsigned>(t + 1)));
    }
    const Amount wanted{.pairs = pairs,
                        .live = live_that_fit(workload, threads, contenders.room_bytes)};
    for (const auto& subject : field_.subjects) {
      subject->begin_case();
      const Amount cold = affordable(*subject, steps_, wanted, options.round_ms);
      warm_up(*subject, steps_, cold, options.round_ms);
      amounts_.push_back(affordable(*subject, steps_, wanted, options.round_ms));
    }
  }

  // Round by round, each contender once, so that noise of the machine hits all alike.
  [[nodiscard]] AllocCase run() {
    const std::size_t count = field_.subjects.size();
    std::vector<std::vector<double>> samples(count);
    std::vector<std::vector<double>> ratios(count);
    for (int i = 0; i < rounds_; ++i) {
      const std::vector<double> now = round();
      for (std::size_t s = 0; s < count; ++s) {
        samples[s].push_back(now[s]);
        ratios[s].push_back(now[s] / now.back());
      }
    }
    AllocCase result{.name = name_, .threads = threads_};
    for (std::size_t s = 0; s < count; ++s) {
      result.results.push_back({.allocator = field_.subjects[s]->name(),
                                .pair_ns = spread_of(samples[s]),
                                .to_baseline = spread_of(ratios[s]),
                                .pairs = amounts_[s].pairs});
      if (is_churn_) {
        result.results[s].reserved_over_live = field_.subjects[s]->reserved_over_live();
      }
    }
    return result;
  }

 private:
  // The quickest of three turns: what else the machine does only ever adds.
  [[nodiscard]] std::vector<double> round() const {
    constexpr int kTurns = 3;
    std::vector<double> now(field_.subjects.size(), std::numeric_limits<double>::infinity());
    for (int turn = 0; turn < kTurns; ++turn) {
      for (std::size_t s = 0; s < now.size(); ++s) {
        now[s] = std::min(now[s], measure(*field_.subjects[s], steps_, amounts_[s]));
      }
    }
    return now;
  }

  std::string name_;
  int threads_;
  int rounds_;
  bool is_churn_;
  const Contenders& field_;
  std::vector<std::vector<Step>> steps_{};
  std::vector<Amount> amounts_{};
};

const AllocCase* on_one_thread(const AllocBench& bench, const std::string& name) {
  for (const AllocCase& entry : bench.cases) {
    if (entry.threads == 1 && entry.name == name) return &entry;
  }
  return nullptr;
}

void add_scaling(AllocBench& bench) {
  for (AllocCase& entry : bench.cases) {
    const AllocCase* one = on_one_thread(bench, entry.name);
    if (one == nullptr || one == &entry) continue;
    for (std::size_t s = 0; s < entry.results.size(); ++s) {
      entry.results[s].scaling = one->results[s].pair_ns.median / entry.results[s].pair_ns.median;
    }
  }
}

}  // namespace

AllocBench bench_alloc(const AllocBenchOptions& options,
                       const Contenders& contenders,
                       const Progress& progress) {
  AllocBench bench{.device = contenders.device,
                   .baseline = contenders.subjects.back()->name(),
                   .notes = contenders.notes};
  for (const int threads : options.threads) {
    for (const Workload& workload : workloads()) {
      if (workload.name.find(options.filter) == std::string::npos) continue;
      progress(fmt::format("measuring {}, {} threads", workload.name, threads));
      bench.cases.push_back(Case(workload, threads, options, contenders).run());
    }
  }
  add_scaling(bench);
  progress("");
  return bench;
}

}  // namespace headroom::cli
