// One op and its plain counterpart, taken in turn.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/ops/bench_ops.h"

namespace headroom::cli {

using OpWork = std::function<void()>;

struct Duel {
  std::string name;
  OpWork ours;
  OpWork plain;
  double wanted = 0;
  double amount = 0;      // operations or bytes of one run
  int least_repeats = 5;  // turns of a round
};

// A duel that is not made, with all its operands, before its turn.
struct DuelMaker {
  std::string name;
  std::function<Duel(const std::string& name)> make;
};

// Layers: convolutions of ResNet-50 and attention of GPT-2, forward and with the way back.
[[nodiscard]] std::vector<DuelMaker> convolution_duels(int threads);
[[nodiscard]] std::vector<DuelMaker> attention_duels();

}  // namespace headroom::cli
