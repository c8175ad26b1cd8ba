// A whole training step beside the matrix products it is made of, as plain calls of OpenBLAS; on
// the default allocator and on PyTorch's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/train/step.h"

#include "cli/command.h"
#include "cli/output/progress.h"
#include "cli/output/spread.h"

namespace headroom::cli {

struct TrainCost {
  std::string name{};
  train::StepConfig config{};
  Spread step_ms{};  // on the default allocator
  Spread pytorch_ms{};
  Spread plain_ms{};
  Spread overhead{};  // of the step, round by round: 0.1 is 10 % more than the products alone
  double operations = 0;
};

struct TrainBench {
  std::string device{};
  std::vector<TrainCost> costs{};
};

[[nodiscard]] TrainBench bench_train(int rounds, const Progress& progress);
[[nodiscard]] std::string train_bench_json(const TrainBench& bench);
[[nodiscard]] std::string draw_train_bench(const TrainBench& bench, const Context& context);

}  // namespace headroom::cli
