// Pairs of allocate and free, on our allocators and on others, side by side in one run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/contenders.h"
#include "cli/output/progress.h"
#include "cli/output/spread.h"

namespace headroom::cli {

struct AllocResult {
  std::string allocator;
  Spread pair_ns;           // wall time over all pairs of all threads
  Spread to_baseline;       // of each round, over the baseline of the same round
  std::uint64_t pairs = 0;  // of each thread, in each turn: as many as its time allowed
  // Of several threads: pairs a second over those of one thread, round by round; none where one was
  // not measured.
  std::optional<double> scaling{};
  // In churn, of those that say: the most that was reserved over the most that was live.
  std::optional<double> reserved_over_live{};
};

struct AllocCase {
  std::string name;  // "hot 512B", "churn mixed"
  int threads = 1;
  std::vector<AllocResult> results{};
};

struct AllocBenchOptions {
  std::vector<int> threads{1, 2, 4, 8, 16};
  int rounds = 7;
  std::uint64_t pairs = 1'000'000;  // at most, of each thread, in each turn
  std::uint64_t turn_ms = 100;      // about what one turn of an allocator may take
  std::string filter{};             // only cases with this in their name; empty for all
};

struct AllocBench {
  std::string device;
  std::string baseline;  // the allocator that ratios are over
  std::vector<std::string> notes{};
  std::vector<AllocCase> cases{};
};

// `progress` is told what is being measured.
[[nodiscard]] AllocBench bench_alloc(const AllocBenchOptions& options,
                                     const Contenders& contenders,
                                     const Progress& progress);

}  // namespace headroom::cli
