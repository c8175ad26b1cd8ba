// StepRunner: a model, its optimiser and its data on an allocator, and the training step that
// `train`, `plan`, `demo` and `bench` all run. On a meta device the same code makes the same
// allocator events, and no numbers.
//
//   StepRunner runner({.model = {.name = "gpt2-tiny"}, .optimizer = "adamw"}, allocator);
//   for (int i = 0; i < 100; ++i) log(runner.step().loss());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/memory/allocator.h"
#include "headroom/nn/data/loader.h"
#include "headroom/nn/optim/gradients.h"
#include "headroom/nn/optim/optimizer.h"
#include "headroom/train/models.h"

namespace headroom::train {

namespace internal {
class StepData;
}  // namespace internal

// f32 and f64 are the type of everything; bf16 and f16 are autocast over f32 weights, f16 with a
// gradient scaler.
enum class Precision : std::uint8_t { kF32, kF64, kBF16, kF16 };
[[nodiscard]] std::string_view to_string(Precision precision) noexcept;
// Throws InvalidArgument, with what there is.
[[nodiscard]] Precision parse_precision(std::string_view text);

// Which blocks are run again in the backward: none, each, or all in about sqrt(n) segments.
enum class CheckpointMode : std::uint8_t { kNone, kSqrt, kAll };
[[nodiscard]] std::string_view to_string(CheckpointMode mode) noexcept;
[[nodiscard]] CheckpointMode parse_checkpoint(std::string_view text);

struct StepConfig {
  ModelConfig model{};
  std::int64_t batch = 0;       // examples of an optimiser step; 0 is the model's own
  std::int64_t accumulate = 1;  // micro-batches they are cut into
  Precision precision = Precision::kF32;
  CheckpointMode checkpoint = CheckpointMode::kNone;
  std::string optimizer{};  // sgd, momentum, adam, adamw; empty is the model's own
  std::optional<double> lr{};
  std::uint64_t seed = 0;
  int workers = 0;   // threads that write batches; 0: the one that takes them
  int prefetch = 0;  // batches on their way while a step runs; one of them on the device

  friend bool operator==(const StepConfig&, const StepConfig&) = default;
};

// With the defaults filled in. Throws InvalidArgument for what cannot be.
[[nodiscard]] StepConfig resolved(StepConfig config);

// The results of a step, on the device. They are those of the runner's last step: look before the
// next one.
class StepResult {
 public:
  StepResult(Tensor loss, Tensor skipped, std::int64_t examples)
      : micro_batch(examples), loss_(std::move(loss)), skipped_(std::move(skipped)) {}

  // The mean over the batch, before the update; not a number on meta. Waits for the device, which
  // the step itself does not.
  [[nodiscard]] double loss() const;
  // Whether the scaler found gradients that are not finite. Waits.
  [[nodiscard]] bool is_skipped() const;

  std::int64_t micro_batch = 0;

 private:
  Tensor loss_;     // f64
  Tensor skipped_;  // f64, not 0 where it was; undefined without a scaler
};

class StepRunner {
 public:
  // Throws InvalidArgument as resolved() does, OutOfMemory when the model itself does not fit.
  // Without data, synthetic ones.
  StepRunner(const StepConfig& config,
             memory::Allocator& allocator,
             std::unique_ptr<nn::Dataset> data = nullptr);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Forward, backward, update, and the gradients are dropped. When memory runs out in the first
  // two, nothing has changed but what batch norm averages, and the step may be tried again.
  StepResult step();

  [[nodiscard]] const StepConfig& config() const noexcept { return config_; }
  [[nodiscard]] Model& model() const noexcept { return *model_; }
  [[nodiscard]] nn::Optimizer& optimizer() const noexcept { return *optimizer_; }
  [[nodiscard]] memory::Allocator& allocator() const noexcept { return allocator_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::int64_t micro_batch() const noexcept { return micro_; }
  // Cuts the batch into pieces of this size, and a rest. Throws InvalidArgument below 1.
  void set_micro_batch(std::int64_t examples);
  // Whether the last step failed after its gradients were there.
  [[nodiscard]] bool failed_in_update() const noexcept { return failed_in_update_; }
  // Bytes of what goes into the blocks and comes out of each, at the last forward.
  [[nodiscard]] const std::vector<std::uint64_t>& boundary_bytes() const noexcept {
    return boundaries_;
  }

 private:
  [[nodiscard]] nn::Batch load(std::int64_t first, std::int64_t count);
  [[nodiscard]] Tensor run_model(const Tensor& x);
  [[nodiscard]] Tensor loss_of(const nn::Batch& batch);
  void accumulate_gradients();
  void update();

  StepConfig config_;
  memory::Allocator& allocator_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<nn::GradScaler> scaler_{};  // of f16
  // On the device: the loss of the last step, and where a step draws random numbers.
  Tensor loss_{};
  Tensor random_state_{};
  std::unique_ptr<internal::StepData> data_;
  std::int64_t micro_ = 0;
  std::uint64_t steps_ = 0;
  nn::Batch batch_{};  // of the step below, until the next is taken
  std::uint64_t batch_step_ = 0;
  std::vector<std::uint64_t> boundaries_{};
  bool failed_in_update_ = false;
};

}  // namespace headroom::train
