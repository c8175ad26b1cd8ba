#include "benchmarks/trace/bench_trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <unistd.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/trace/record/file_recorder.h"
#include "headroom/trace/record/ring_recorder.h"

#include "benchmarks/trace/bench_trace_files.h"

namespace headroom::cli {
namespace {

using memory::CachingAllocator;
using Clock = std::chrono::steady_clock;

constexpr int kFrames = 20;
constexpr int kTries = 10;
constexpr double kPlainBudgetNs = 30;
constexpr double kStackBudgetNs = 250;

double time_pairs(CachingAllocator& allocator, std::uint64_t pairs) {
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < pairs; ++i) allocator.free(allocator.allocate(512 * (1 + i % 8)));
  const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
  return passed.count() / static_cast<double>(pairs);
}

// Below as many frames as are to be walked.
// NOLINTNEXTLINE(misc-no-recursion): the frames are what it is for
__attribute__((noinline)) double time_below(CachingAllocator& allocator,
                                            std::uint64_t pairs,
                                            int frames) {
  if (frames == 0) return time_pairs(allocator, pairs);
  // Not a call in tail position, which would leave no frame.
  return time_below(allocator, pairs, frames - 1) + 0.0;
}

// A file that goes with the measurement.
std::string scratch_file(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          ("headroom-bench-" + std::to_string(::getpid()) + "-" + name))
      .string();
}

struct Contender {
  std::string name;
  double budget_ns = 0;
  memory::EventSink* sink = nullptr;
  std::unique_ptr<trace::RingRecorder> ring{};
  std::unique_ptr<trace::FileRecorder> file{};
  std::vector<double> pair_ns{};
  std::vector<double> added_ns{};
};

Contender ring_contender(std::string name, double budget_ns, trace::StackOptions stacks) {
  Contender out{.name = std::move(name), .budget_ns = budget_ns};
  out.ring = std::make_unique<trace::RingRecorder>(trace::RingOptions{.stacks = stacks});
  out.sink = out.ring.get();
  return out;
}

Contender file_contender(std::string name, double budget_ns, trace::StackOptions stacks) {
  Contender out{.name = std::move(name), .budget_ns = budget_ns};
  const std::string path = scratch_file(std::to_string(static_cast<int>(stacks.mode)) + ".hrt");
  stacks.symbolise = false;
  out.file = std::make_unique<trace::FileRecorder>(
      trace::FileOptions{.path = path, .overwrite = true, .stacks = stacks});
  std::filesystem::remove(path);  // it stays until it is closed, and is gone however we end
  out.sink = &out.file->channel({});
  return out;
}

std::vector<Contender> contenders() {
  using trace::StackMethod;
  using trace::StackMode;
  const trace::StackOptions all{.mode = StackMode::kOnAll, .depth = kFrames};
  std::vector<Contender> out;
  out.push_back({.name = "no recorder"});
  out.push_back(ring_contender("ring", kPlainBudgetNs, {}));
  out.push_back(ring_contender("ring, 20 frames", kStackBudgetNs, all));
  out.push_back(ring_contender(
      "ring, 20 frames at allocations", 0, {.mode = StackMode::kOnAllocation, .depth = kFrames}));
  out.push_back(ring_contender(
      "ring, 20 frames by the unwinder",
      0,
      {.mode = StackMode::kOnAll, .method = StackMethod::kUnwinder, .depth = kFrames}));
  out.push_back(file_contender("file", kPlainBudgetNs, {}));
  out.push_back(file_contender("file, 20 frames", kStackBudgetNs, all));
  return out;
}

// The quickest of some short tries, since other work on the machine only ever makes one longer.
void run_round(CachingAllocator& allocator,
               std::vector<Contender>& contenders,
               std::uint64_t pairs,
               std::vector<double>& packing_ns) {
  std::vector<double> best(contenders.size(), 1e300);
  for (int i = 0; i < kTries; ++i) {
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      if (contenders[c].sink != nullptr) allocator.add_sink(*contenders[c].sink);
      best[c] = std::min(best[c], time_below(allocator, pairs, kFrames));
      if (contenders[c].sink != nullptr) allocator.remove_sink(*contenders[c].sink);
      if (contenders[c].file == nullptr) continue;
      const auto start = Clock::now();
      contenders[c].file->flush();
      const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
      packing_ns.push_back(passed.count() / static_cast<double>(3 * pairs));
    }
  }
  constexpr double kEventsPerPair = 3;
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    contenders[c].pair_ns.push_back(best[c]);
    contenders[c].added_ns.push_back((best[c] - best[0]) / kEventsPerPair);
  }
}

void bench_recording(const TraceBenchOptions& options,
                     const Progress& progress,
                     TraceBench& bench) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  CachingAllocator allocator(*device);
  std::vector<Contender> field = contenders();
  std::vector<double> packing_ns;
  std::vector<double> warm_up;
  for (Contender& contender : field) {  // touches what is touched once
    if (contender.sink != nullptr) allocator.add_sink(*contender.sink);
    (void)time_below(allocator, options.pairs, kFrames);
    if (contender.sink != nullptr) allocator.remove_sink(*contender.sink);
  }
  for (int round = 0; round < options.rounds; ++round) {
    progress("recording, round " + std::to_string(round + 1));
    run_round(allocator, field, options.pairs, packing_ns);
  }
  for (Contender& contender : field) {
    bench.recording.push_back({.name = contender.name,
                               .pair_ns = spread_of(contender.pair_ns),
                               .added_ns = spread_of(contender.added_ns),
                               .budget_ns = contender.budget_ns});
    if (contender.file != nullptr && contender.file->dropped_events() > 0) {
      bench.notes.push_back(contender.name + ": its queue was full, and events were dropped");
    }
  }
  bench.packing_ns = spread_of(packing_ns);
}

}  // namespace

TraceBench bench_trace(const TraceBenchOptions& options, const Progress& progress) {
  TraceBench bench;
  bench_recording(options, progress, bench);
  bench_files(options, progress, bench);
  progress("");
  return bench;
}

}  // namespace headroom::cli
