#include "benchmarks/paged/bench_paged.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/replay/policy.h"
#include "headroom/replay/pool_floor.h"

namespace headroom::bench {
namespace {

constexpr std::array<std::string_view, kContenders> kPolicies{
    "paged", "pytorch:default", "pytorch:expandable_segments:True", "cudaMallocAsync"};

Outcome outcome_of(const replay::PolicyResult& found) {
  const replay::ReplayResult& result = found.result;
  const replay::DriverCalls& calls = result.calls;
  Outcome out{.peak_reserved = result.peak_reserved,
              .driver_us = calls.driver_us,
              .driver_calls = calls.device_allocs + calls.device_frees + calls.handles_mapped +
                              calls.handles_unmapped,
              .failures = result.ooms};
  if (found.smallest) out.smallest_limit = found.smallest->bytes;
  return out;
}

}  // namespace

std::string_view policy_of(Contender contender) noexcept {
  return kPolicies[static_cast<std::size_t>(contender)];
}

double TrafficRound::over_floor(Contender contender) const {
  return static_cast<double>(outcome(contender).peak_reserved) /
         static_cast<double>(std::max<std::uint64_t>(floor, 1));
}

double TrafficRound::driver_share(Contender contender) const {
  return outcome(contender).driver_us /
         (kWorkUsPerRequest * static_cast<double>(std::max<std::uint64_t>(requests, 1)));
}

std::optional<std::uint64_t> TrafficRound::allowed_bytes() const {
  if (is_of_small) return std::nullopt;
  std::uint64_t best = UINT64_MAX;
  for (const Contender contender : {Contender::kDefault, Contender::kExpandable}) {
    if (outcome(contender).failures == 0) best = std::min(best, outcome(contender).peak_reserved);
  }
  if (best == UINT64_MAX) return std::nullopt;
  return static_cast<std::uint64_t>(static_cast<double>(best) * (1 + kMostOverBest)) +
         kMostBytesOverBest;
}

bool TrafficRound::keeps_memory() const {
  const auto allowed = allowed_bytes();
  if (!is_within_bound || outcome(Contender::kPaged).failures > 0) return false;
  return !allowed || outcome(Contender::kPaged).peak_reserved <= *allowed;
}

bool TrafficRound::keeps_time() const {
  return driver_share(Contender::kPaged) <= kMostDriverShare;
}

bool TrafficRow::keeps_promise() const {
  return std::ranges::all_of(
      rounds, [](const TrafficRound& round) { return round.keeps_memory() && round.keeps_time(); });
}

std::size_t kept(const PagedBench& bench) {
  return static_cast<std::size_t>(
      std::ranges::count_if(bench.rows, [](const TrafficRow& row) { return row.keeps_promise(); }));
}

bool is_of_small_blocks(const replay::Program& program) {
  std::vector<std::uint64_t> sizes(program.slot_count);
  std::uint64_t small = 0;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < program.ops.size() && i <= program.peak_live_op; ++i) {
    const replay::Op& op = program.ops[i];
    const bool comes = op.kind == replay::OpKind::kAllocate;
    if (!comes && op.kind != replay::OpKind::kFree && op.kind != replay::OpKind::kComplete)
      continue;
    if (comes) sizes[op.slot] = op.size_bytes;
    const std::uint64_t bytes = round_up(sizes[op.slot], memory::kMinBlockBytes);
    const std::uint64_t of_small = sizes[op.slot] <= 64_KiB ? bytes : 0;
    all = comes ? all + bytes : all - bytes;
    small = comes ? small + of_small : small - of_small;
  }
  return 2 * small > all;
}

TrafficRound measure(const Generator& generator,
                     const TrafficOptions& traffic,
                     bool finds_smallest_limit) {
  const Made made = generate(generator, traffic);
  const replay::Program& program = made.program;
  TrafficRound out{.seed = traffic.seed,
                   .requests = program.allocs,
                   .ops = program.ops.size(),
                   .steps = made.steps,
                   .streams = program.streams.size(),
                   .pools = program.pools.size() - 1,
                   .peak_live = program.peak_live,
                   .floor = replay::pool_floor_bytes(program),
                   .is_of_small = is_of_small_blocks(program)};
  for (std::size_t i = 0; i < kContenders; ++i) {
    const replay::Policy policy = replay::parse_policy(kPolicies[i]).value();
    const bool is_model = policy.kind == replay::PolicyKind::kAsyncPool;
    const replay::PolicyResult found =
        replay::run_policy(program,
                           policy,
                           {.finds_smallest_limit = finds_smallest_limit && !is_model,
                            .checks_bound = true,
                            .work_us_per_request = kWorkUsPerRequest});
    out.outcomes[i] = outcome_of(found);
    // The model never gives anything back, so what it takes is what it needs.
    if (finds_smallest_limit && is_model)
      out.outcomes[i].smallest_limit = found.result.peak_reserved;
    if (found.result.is_bound_exceeded()) out.is_within_bound = false;
  }
  return out;
}

PagedBench bench_paged(const PagedBenchOptions& options, const PagedProgress& progress) {
  const auto started = std::chrono::steady_clock::now();
  PagedBench bench{.options = options};
  for (const Generator& generator : generators_like(options.filter)) {
    bench.rows.push_back(
        {.generator = generator,
         .rounds = std::vector<TrafficRound>(static_cast<std::size_t>(options.rounds))});
  }
  const std::size_t rounds = static_cast<std::size_t>(options.rounds);
  const std::size_t jobs = bench.rows.size() * rounds;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // over `done` and `failure`
  std::size_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t job = next++; job < jobs; job = next++) {
      try {
        TrafficRow& row = bench.rows[job / rounds];
        row.rounds[job % rounds] =
            measure(row.generator,
                    {.seed = options.seed + job % rounds, .percent = options.percent},
                    options.finds_smallest_limit);
        const std::scoped_lock lock(mutex);
        ++done;
        if (progress) progress(done);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        next = jobs;
      }
    }
  };
  const unsigned cores = std::max(std::thread::hardware_concurrency(), 1U);
  const std::size_t threads =
      options.threads > 0 ? static_cast<std::size_t>(options.threads) : cores;
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(threads, jobs); ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  bench.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return bench;
}

}  // namespace headroom::bench
