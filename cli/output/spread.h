// Spread: samples of one quantity, what was typical and how far it strayed.
#pragma once

#include <vector>

namespace headroom::cli {

struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};

[[nodiscard]] Spread spread_of(std::vector<double> samples);

}  // namespace headroom::cli
