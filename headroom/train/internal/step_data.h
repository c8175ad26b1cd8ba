// StepData: a dataset through nn::DataLoader, a batch for each step, epoch after epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/nn/data/loader.h"

namespace headroom::train::internal {

struct StepDataOptions {
  std::int64_t batch = 1;
  DType type = DType::kF32;  // of numbers: f32 or f64
  std::uint64_t seed = 0;
  int workers = 0;
  int prefetch = 0;
};

class StepData {
 public:
  StepData(std::unique_ptr<nn::Dataset> dataset,
           const StepDataOptions& options,
           memory::Allocator& allocator);

  // The next batch. After a failure (memory ran out) the same one is tried again.
  [[nodiscard]] nn::Batch next();

 private:
  void open_epoch();
  void follow_on();

  std::unique_ptr<nn::Dataset> dataset_;
  nn::DataLoader loader_;
  std::optional<nn::DataLoader::Epoch> epoch_{};
  std::int64_t number_ = 0;  // of the epoch
  std::int64_t taken_ = 0;   // batches of it
};

}  // namespace headroom::train::internal
