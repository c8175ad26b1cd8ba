// Finds leaks: memory that grows from one iteration to the next and is never freed.
//
// A block counts if it outlives its iteration and is still allocated when the recording ends.
// Growth is steady if each of the last iterations adds such blocks: at least four iterations, and
// at least a quarter of all. The memory that lives longer than one iteration must rise by the same
// amount. So these are not leaks: optimiser state made in the first step, a cache that fills up and
// stays, sessions that come and go, and blocks in use when the recording ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/analysis/iterations.h"

namespace headroom::analysis {

struct GrowingSite {
  std::string site{};  // sites.h; `(no stack)` without stacks
  std::uint64_t bytes_per_iteration = 0;
  std::uint64_t blocks = 0;  // over all iterations that grow
  StackId stack = 0;         // of its first block
};

struct Growth {
  IterationSource source = IterationSource::kNone;  // kNone: the parts are equal runs of events
  std::string marker{};
  std::size_t iterations = 0;  // in the recording
  std::size_t growing = 0;     // how many of the last ones grow; an unfinished one is not counted
  // Live bytes (as requested, rounded to 512): what most iterations add, or else the mean.
  std::uint64_t bytes_per_iteration = 0;
  bool is_same_each_time = false;
  std::uint64_t total_bytes = 0;  // added by the iterations that grow
  std::uint64_t blocks = 0;
  std::vector<GrowingSite> sites{};  // largest first; all together are bytes_per_iteration
  // The site of a small block that each iteration replaces by a new one, as `total += loss` does:
  // a sum with gradients keeps the graph of every iteration alive.
  std::optional<std::string> sum_site{};
};

// Nothing where no growth is steady.
[[nodiscard]] std::optional<Growth> find_growth(const TraceIndex& index,
                                                const Iterations& iterations);

}  // namespace headroom::analysis
