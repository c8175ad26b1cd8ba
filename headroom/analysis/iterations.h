// Where the iterations of a program are: the steps of a training, the requests of a server.
//
// Annotations say it where there are any (PyTorch marks every Optimizer.step). Without them the
// traffic itself does: an iteration asks for the same sizes in the same order as the one before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/analysis/index.h"

namespace headroom::analysis {

enum class IterationSource : std::uint8_t {
  kNone,         // nothing repeats often enough
  kAnnotations,  // the ends of a scope of that name
  kTraffic,      // the allocations repeat with a fixed period
};

struct Iterations {
  IterationSource source = IterationSource::kNone;
  std::string marker{};             // the scope's name, for kAnnotations
  std::uint64_t period_allocs = 0;  // for kTraffic
  // Positions of the index: iteration i lies between bounds[i] and bounds[i + 1].
  std::vector<std::uint32_t> bounds{};

  [[nodiscard]] std::size_t count() const noexcept {
    return bounds.size() < 2 ? 0 : bounds.size() - 1;
  }
};

// Fewer are not called iterations: two or three of anything may look alike.
inline constexpr std::size_t kFewestIterations = 4;

[[nodiscard]] Iterations find_iterations(const TraceIndex& index);

}  // namespace headroom::analysis
