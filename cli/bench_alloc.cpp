#include "cli/bench_alloc.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Something that allocates and frees.
class Subject {
 public:
  Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  virtual ~Subject() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  virtual std::uint64_t allocate(std::uint64_t size_bytes) = 0;
  virtual void free(std::uint64_t address) = 0;
};

class Malloc final : public Subject {
 public:
  [[nodiscard]] std::string name() const override { return "malloc (C library)"; }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    return reinterpret_cast<std::uint64_t>(std::malloc(size_bytes));
  }
  void free(std::uint64_t address) override { std::free(reinterpret_cast<void*>(address)); }
};

// Opened at run time and kept to itself: linked in, it would take the place of malloc.
class Mimalloc final : public Subject {
 public:
  static std::unique_ptr<Mimalloc> open() {
    for (const char* name : {"libmimalloc.so.2", "libmimalloc.so"}) {
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
        auto subject = std::make_unique<Mimalloc>();
        subject->malloc_ = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "mi_malloc"));
        subject->free_ = reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"));
        if (subject->malloc_ != nullptr && subject->free_ != nullptr) return subject;
      }
    }
    return nullptr;
  }
  [[nodiscard]] std::string name() const override { return "mimalloc"; }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    return reinterpret_cast<std::uint64_t>(malloc_(size_bytes));
  }
  void free(std::uint64_t address) override { free_(reinterpret_cast<void*>(address)); }

 private:
  void* (*malloc_)(std::size_t) = nullptr;
  void (*free_)(void*) = nullptr;
};

// Ours, on a device of addresses only: what is left is the allocator itself.
class Caching final : public Subject {
 public:
  explicit Caching(bool expandable)
      : is_expandable_(expandable),
        device_(device::MetaDevice::create({.capacity_bytes = 4_TiB})),
        allocator_(*device_, {.config = {.expandable_segments = expandable}}) {}
  [[nodiscard]] std::string name() const override {
    return is_expandable_ ? "headroom caching, expandable" : "headroom caching";
  }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    return allocator_.allocate(size_bytes);
  }
  void free(std::uint64_t address) override { allocator_.free(address); }

 private:
  bool is_expandable_;
  std::unique_ptr<device::MetaDevice> device_;
  memory::CachingAllocator allocator_;
};

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
    step.slot = workload.live == 0 ? 0 : static_cast<std::uint32_t>(random() % workload.live);
    step.size_bytes = size();
  }
  return steps;
}

void run_hot(Subject& subject, const std::vector<Step>& steps) {
  for (const Step& step : steps) subject.free(subject.allocate(step.size_bytes));
}

void run_churn(Subject& subject, const std::vector<Step>& steps, std::vector<std::uint64_t>& held) {
  for (const Step& step : steps) {
    subject.free(held[step.slot]);
    held[step.slot] = subject.allocate(step.size_bytes);
  }
}

// Nanoseconds a pair: wall time from the first thread's start to the last one's end, over all
// pairs. The threads read the clock themselves: whoever waits for them may wake up late.
double measure(Subject& subject,
               const Workload& workload,
               const std::vector<std::vector<Step>>& steps) {
  struct Interval {
    Clock::time_point begin;
    Clock::time_point end;
  };
  std::barrier start(static_cast<std::ptrdiff_t>(steps.size()));
  std::vector<Interval> intervals(steps.size());
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < steps.size(); ++t) {
      workers.emplace_back(
          [&subject, &workload, &own = steps[t], &start, &interval = intervals[t]] {
            std::vector<std::uint64_t> held;
            for (std::size_t i = 0; i < workload.live; ++i) {
              held.push_back(subject.allocate(own[i % own.size()].size_bytes));
            }
            start.arrive_and_wait();
            interval.begin = Clock::now();
            workload.live == 0 ? run_hot(subject, own) : run_churn(subject, own, held);
            interval.end = Clock::now();
            for (const std::uint64_t address : held) subject.free(address);
          });
    }
  }
  const auto begin = std::ranges::min(intervals, {}, &Interval::begin).begin;
  const auto end = std::ranges::max(intervals, {}, &Interval::end).end;
  const std::chrono::duration<double, std::nano> elapsed = end - begin;
  return elapsed.count() / static_cast<double>(steps.size() * steps[0].size());
}

AllocCase run_case(const Workload& workload,
                   int threads,
                   const AllocBenchOptions& options,
                   const std::vector<std::unique_ptr<Subject>>& subjects) {
  const auto pairs = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(static_cast<double>(options.pairs) * workload.share));
  std::vector<std::vector<Step>> steps;
  steps.reserve(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) {
    steps.push_back(draw_steps(workload, pairs, static_cast<unsigned>(t + 1)));
  }
  std::vector<std::vector<double>> samples(subjects.size());
  std::vector<std::vector<double>> ratios(subjects.size());
  for (int round = 0; round < options.rounds + 1; ++round) {
    std::vector<double> now;
    now.reserve(subjects.size());
    for (const auto& subject : subjects) now.push_back(measure(*subject, workload, steps));
    if (round == 0) continue;  // the first warms up
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      samples[i].push_back(now[i]);
      ratios[i].push_back(now[i] / now.back());
    }
  }
  AllocCase result{.name = workload.name, .threads = threads};
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    result.results.push_back({.allocator = subjects[i]->name(),
                              .pair_ns = spread_of(samples[i]),
                              .to_baseline = spread_of(ratios[i])});
  }
  return result;
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {.median = samples[samples.size() / 2], .low = samples.front(), .high = samples.back()};
}

AllocBench bench_alloc(const AllocBenchOptions& options,
                       const std::function<void(std::string_view)>& progress) {
  std::vector<std::unique_ptr<Subject>> subjects;
  AllocBench bench;
  subjects.push_back(std::make_unique<Caching>(false));
  subjects.push_back(std::make_unique<Caching>(true));
  subjects.push_back(std::make_unique<Malloc>());
  if (auto mimalloc = Mimalloc::open()) {
    subjects.push_back(std::move(mimalloc));
  } else {
    bench.notes.emplace_back("mimalloc is not installed; ratios are over malloc");
  }
  bench.baseline = subjects.back()->name();
  for (const int threads : options.threads) {
    for (const Workload& workload : workloads()) {
      progress(fmt::format("measuring {}, {} threads", workload.name, threads));
      bench.cases.push_back(run_case(workload, threads, options, subjects));
    }
  }
  progress("");
  return bench;
}

}  // namespace headroom::cli
