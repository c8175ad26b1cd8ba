// Memory that grows from iteration to iteration and is not given back: a leak, and who grows.
//
// A block counts where it outlives its iteration and is still held when the last one ends. Growth
// is steady when every later iteration adds such blocks, at least four in a row that are a quarter
// of all, up to the last; and when what is held for long rises by what they add. So these are none:
// optimiser state made in the first step, a cache that fills up and stays, sessions that come and
// go, and whatever is in flight at the end.
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
  std::size_t growing = 0;     // of them, the last so many, one in flight not counted
  // Live bytes (asked for, rounded to 512). Exact where most iterations add the same; else the
  // mean.
  std::uint64_t bytes_per_iteration = 0;
  bool is_same_each_time = false;
  std::uint64_t total_bytes = 0;  // added by the iterations that grow
  std::uint64_t blocks = 0;
  std::vector<GrowingSite> sites{};  // largest first; all together are bytes_per_iteration
  // A small block that each iteration replaces by a new one, as a running sum does: with
  // gradients, such a sum keeps the graph of every iteration alive.
  std::optional<std::string> sum_site{};
};

// Nothing where no growth is steady.
[[nodiscard]] std::optional<Growth> find_growth(const TraceIndex& index,
                                                const Iterations& iterations);

}  // namespace headroom::analysis
