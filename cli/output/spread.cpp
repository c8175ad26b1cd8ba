#include "cli/output/spread.h"

#include <algorithm>

namespace headroom::cli {

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {.median = samples[samples.size() / 2], .low = samples.front(), .high = samples.back()};
}

}  // namespace headroom::cli
