// Recordings replayed again and again: how fast, and what each policy makes of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/replay/policy.h"

#include "benchmarks/alloc/bench_alloc.h"
#include "cli/command.h"

namespace headroom::cli {

struct ReplayBenchOptions {
  std::vector<std::string> paths{};  // none: the samples
  int rounds = 7;
};

struct ReplayBenchRow {
  std::string policy;
  std::uint64_t peak_reserved = 0;
  double over_live = 0;
  double driver_us = 0;
  std::uint64_t retries = 0;
  bool is_model = false;
};

struct ReplayBenchCase {
  std::string recording;
  std::uint64_t events = 0;
  std::uint64_t allocs = 0;
  std::uint64_t peak_live = 0;
  // Under the recorded settings, reading and compiling excluded; one thread. By the clock on the
  // wall, and by the processor's, which does not run while others do.
  Spread events_per_second{};
  Spread events_per_cpu_second{};
  std::vector<ReplayBenchRow> rows{};
};

[[nodiscard]] std::vector<ReplayBenchCase> bench_replay(const ReplayBenchOptions& options,
                                                        const Context& context);

[[nodiscard]] std::string bench_replay_json(const std::vector<ReplayBenchCase>& cases);
[[nodiscard]] std::string draw(const std::vector<ReplayBenchCase>& cases, const Context& context);

}  // namespace headroom::cli
