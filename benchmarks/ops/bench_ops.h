// Ops on tensors beside what they are made of: plain calls of the matrix library, plain vectorised
// loops over the same bytes, and nothing at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/output/progress.h"
#include "cli/output/spread.h"

namespace headroom::cli {

// One op and its plain counterpart, taken in turn.
struct OpCost {
  std::string name;  // "matmul 512 x 512 x 512"
  Spread ours_us{};
  Spread plain_us{};
  Spread speed{};         // plain over ours, round by round: 1 is as fast as plain
  double wanted = 0;      // the least that speed should be; 0 where dispatch decides
  double per_second = 0;  // operations (matrices) or bytes (elements), of ours
};

// The cost of an op on almost no elements.
struct DispatchCost {
  std::string name;
  Spread ns{};
};

// Rows of 4096 elements are added to each operand; less than one cannot be measured.
inline constexpr std::uint64_t kLeastOpsBytes = 4096 * sizeof(float);

struct OpsBenchOptions {
  int rounds = 7;
  std::uint64_t size_bytes = std::uint64_t{64} << 20U;  // of each operand of an element-wise op
  std::string filter{};  // only those with this in "group: name"; empty for all
};

struct OpsBench {
  std::string device;
  int threads = 1;
  std::uint64_t size_bytes = 0;
  std::vector<OpCost> matrices{};
  std::vector<OpCost> convolutions{};
  std::vector<OpCost> attention{};
  std::vector<OpCost> elements{};
  std::vector<DispatchCost> dispatch{};

  [[nodiscard]] bool is_empty() const {
    return matrices.empty() && convolutions.empty() && attention.empty() && elements.empty() &&
           dispatch.empty();
  }
};

// On the cpu. Throws OutOfMemory when the device cannot hold the operands.
[[nodiscard]] OpsBench bench_ops(const OpsBenchOptions& options, const Progress& progress);

}  // namespace headroom::cli
