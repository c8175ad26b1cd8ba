// `headroom bench paged`: programs made to be hard on an allocator, under four of them.
//
//   const PagedBench bench = bench_paged({.seed = 1}, progress);
//   kept(bench);                                   // rows that keep the promise
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/replay/program.h"

#include "benchmarks/paged/generators.h"

namespace headroom::bench {

// The allocators that a row is replayed under, in the order of its columns.
enum class Contender : std::uint8_t { kPaged, kDefault, kExpandable, kAsync };
inline constexpr std::size_t kContenders = 4;
[[nodiscard]] std::string_view policy_of(Contender contender) noexcept;  // "pytorch:default"

// A program does 200 us of work per allocation, as small kernels do; driver time is a share of it.
inline constexpr double kWorkUsPerRequest = 200;
// The promise: at most the better of PyTorch's two, and so much, ...
inline constexpr double kMostOverBest = 0.01;
inline constexpr std::uint64_t kMostBytesOverBest = std::uint64_t{8} << 20U;
// ... with at most this share of the work as driver time.
inline constexpr double kMostDriverShare = 0.06;

struct Outcome {
  std::uint64_t peak_reserved = 0;
  double driver_us = 0;
  std::uint64_t driver_calls = 0;
  std::uint64_t failures = 0;                     // requests that it could not serve on the card
  std::optional<std::uint64_t> smallest_limit{};  // where it was looked for
};

// One generator with one seed.
struct TrafficRound {
  std::uint64_t seed = 0;
  std::uint64_t requests = 0;
  std::uint64_t ops = 0;
  std::uint64_t steps = 0;
  std::size_t streams = 0;
  std::size_t pools = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t floor = 0;      // peak_live, or more where there are private pools
  bool is_of_small = false;     // blocks to 64 KiB are most of what is live at the peak
  bool is_within_bound = true;  // PagedAllocator::bound(), after every op
  std::array<Outcome, kContenders> outcomes{};

  [[nodiscard]] const Outcome& outcome(Contender contender) const {
    return outcomes[static_cast<std::size_t>(contender)];
  }
  [[nodiscard]] double over_floor(Contender contender) const;
  [[nodiscard]] double driver_share(Contender contender) const;
  // The most that the promise allows; nothing where only the bound counts, or PyTorch does not fit.
  [[nodiscard]] std::optional<std::uint64_t> allowed_bytes() const;
  [[nodiscard]] bool keeps_memory() const;
  [[nodiscard]] bool keeps_time() const;
};

struct TrafficRow {
  Generator generator{};
  std::vector<TrafficRound> rounds{};

  [[nodiscard]] bool keeps_promise() const;  // in every round
};

struct PagedBenchOptions {
  std::uint64_t seed = 1;
  int rounds = 1;  // seeds, from `seed` on
  std::string filter{};
  bool finds_smallest_limit = false;
  int percent = 100;  // of the generators' repetitions
  int threads = 0;    // 0: one per core
};

struct PagedBench {
  PagedBenchOptions options{};
  std::vector<TrafficRow> rows{};
  double seconds = 0;
};

[[nodiscard]] std::size_t kept(const PagedBench& bench);

// Blocks to 64 KiB are more than half of what is live when most is.
[[nodiscard]] bool is_of_small_blocks(const replay::Program& program);

[[nodiscard]] TrafficRound measure(const Generator& generator,
                                   const TrafficOptions& traffic,
                                   bool finds_smallest_limit = false);

// `progress` is told how many rounds are done, one call at a time.
using PagedProgress = std::function<void(std::size_t done)>;
[[nodiscard]] PagedBench bench_paged(const PagedBenchOptions& options,
                                     const PagedProgress& progress = {});

}  // namespace headroom::bench
