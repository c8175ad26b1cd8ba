// Pairs of allocate and free, on our allocators and on malloc, side by side in one run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cli {

// Sorted samples of one quantity: what was typical and how far it strayed.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};

[[nodiscard]] Spread spread_of(std::vector<double> samples);

struct AllocResult {
  std::string allocator;
  Spread pair_ns;      // wall time over all pairs of all threads
  Spread to_baseline;  // of each round, over the baseline of the same round
};

struct AllocCase {
  std::string name;  // "hot 512B", "churn mixed"
  int threads = 1;
  std::vector<AllocResult> results{};
};

struct AllocBenchOptions {
  std::vector<int> threads{1, 2, 4, 8, 16};
  int rounds = 7;
  std::uint64_t pairs = 100'000;  // of each thread, in each round
};

struct AllocBench {
  std::string baseline;  // the allocator that ratios are over
  std::vector<std::string> notes{};
  std::vector<AllocCase> cases{};
};

// `progress` is told what is being measured.
[[nodiscard]] AllocBench bench_alloc(const AllocBenchOptions& options,
                                     const std::function<void(std::string_view)>& progress);

}  // namespace headroom::cli
