#include "headroom/train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "headroom/autograd/checkpoint.h"
#include "headroom/autograd/grad_mode.h"
#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"
#include "headroom/tensor/autocast.h"
#include "headroom/tensor/device_random.h"
#include "headroom/tensor/ops/binary.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/train/data.h"
#include "headroom/train/internal/step_data.h"
#include "headroom/train/internal/words.h"

namespace headroom::train {
namespace {

using memory::Phase;
using memory::PhaseScope;

constexpr std::array<std::string_view, 4> kPrecisions{"f32", "f64", "bf16", "f16"};
constexpr std::array<std::string_view, 3> kCheckpointModes{"none", "sqrt", "all"};
constexpr std::array<std::string_view, 4> kOptimizers{"sgd", "momentum", "adam", "adamw"};

template <std::size_t kCount>
std::size_t word_index(const char* what,
                       std::string_view text,
                       const std::array<std::string_view, kCount>& words) {
  const auto* const found = std::ranges::find(words, text);
  if (found == words.end()) throw InvalidArgument(internal::unknown_word(what, text, words));
  return static_cast<std::size_t>(found - words.begin());
}

DType weight_type(Precision precision) {
  return precision == Precision::kF64 ? DType::kF64 : DType::kF32;
}

std::optional<DType> lower_type(Precision precision) {
  if (precision == Precision::kBF16) return DType::kBF16;
  if (precision == Precision::kF16) return DType::kF16;
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Precision precision) noexcept {
  return kPrecisions[static_cast<std::size_t>(precision)];
}

Precision parse_precision(std::string_view text) {
  return static_cast<Precision>(word_index("precision", text, kPrecisions));
}

std::string_view to_string(CheckpointMode mode) noexcept {
  return kCheckpointModes[static_cast<std::size_t>(mode)];
}

CheckpointMode parse_checkpoint(std::string_view text) {
  return static_cast<CheckpointMode>(word_index("checkpoint mode", text, kCheckpointModes));
}

StepConfig resolved(StepConfig config) {
  const ModelInfo& info = find_model(config.model.name);
  if (config.optimizer.empty()) config.optimizer = info.optimizer;
  (void)word_index("optimizer", config.optimizer, kOptimizers);
  if (config.lr && !(std::isfinite(*config.lr) && *config.lr >= 0)) {
    throw InvalidArgument("a learning rate of " + internal::number_word(*config.lr) +
                          " is not possible; use a number of 0 or more");
  }
  if (config.workers < 0 || config.prefetch < 0) {
    throw InvalidArgument("workers and prefetch cannot be less than 0");
  }
  if (config.batch == 0) config.batch = info.batch;
  if (config.batch < 0) {
    throw InvalidArgument("a batch of " + std::to_string(config.batch) +
                          " is too small; use 1 or more");
  }
  if (config.accumulate < 1 || config.accumulate > config.batch) {
    throw InvalidArgument("a batch of " + std::to_string(config.batch) + " cannot be split into " +
                          std::to_string(config.accumulate) + " micro-batches; use 1 to " +
                          std::to_string(config.batch));
  }
  return config;
}

double StepResult::loss() const {
  return loss_.is_meta() ? std::numeric_limits<double>::quiet_NaN() : loss_.item<double>();
}

bool StepResult::is_skipped() const {
  return skipped_.defined() && !skipped_.is_meta() && skipped_.item<double>() != 0;
}

StepRunner::StepRunner(const StepConfig& config,
                       memory::Allocator& allocator,
                       std::unique_ptr<nn::Dataset> data)
    : config_(resolved(config)), allocator_(allocator) {
  default_generator(allocator_.device()).seed(config_.seed);
  model_ =
      make_model(config_.model, {.dtype = weight_type(config_.precision), .device = allocator_});
  optimizer_ = nn::make_optimizer(config_.optimizer, model_->parameters(), config_.lr);
  if (config_.precision == Precision::kF16) {
    // Low enough that the first step is not skipped.
    scaler_ = std::make_unique<nn::GradScaler>(nn::GradScalerOptions{.scale = 1024});
  }
  {
    const memory::CategoryScope category(memory::Category::kOptimizerState);
    loss_ = zeros({}, {.dtype = kF64, .device = allocator_});
    random_state_ = zeros({2}, {.dtype = kI64, .device = allocator_});
  }
  if (!data) data = synthetic_data(model_->example(), config_.seed);
  const internal::StepDataOptions options{.batch = config_.batch,
                                          .type = weight_type(config_.precision),
                                          .seed = config_.seed,
                                          .workers = config_.workers,
                                          .prefetch = config_.prefetch};
  data_ = std::make_unique<internal::StepData>(std::move(data), options, allocator_);
  set_micro_batch((config_.batch + config_.accumulate - 1) / config_.accumulate);
}

StepRunner::~StepRunner() = default;

void StepRunner::set_micro_batch(std::int64_t examples) {
  if (examples < 1) {
    throw InvalidArgument("a micro-batch of " + std::to_string(examples) +
                          " examples is too small; use 1 or more");
  }
  micro_ = std::min(examples, config_.batch);
}

// Examples of the step, from `first` on. Its batch is taken once: a step that is tried again, and
// one that is cut into micro-batches, sees the same.
nn::Batch StepRunner::load(std::int64_t first, std::int64_t count) {
  if (!batch_.input.defined() || batch_step_ != steps_) {
    batch_ = {};  // its memory is there for the next
    batch_ = data_->next();
    batch_step_ = steps_;
  }
  Shape shape = model_->example().input;  // a file's images may be laid out otherwise
  shape.insert(0, count);
  return {.input = batch_.input.narrow(0, first, count).view(shape),
          .target = batch_.target.narrow(0, first, count)};
}

// --- Forward -------------------------------------------------------------------------------------

Tensor StepRunner::run_model(const Tensor& x) {
  std::vector<std::function<Tensor(const Tensor&)>> stages;
  boundaries_.clear();
  for (nn::Module* block : model_->blocks()) {
    stages.emplace_back([block](const Tensor& in) { return (*block)(in); });
  }
  Tensor y = model_->enter(x);
  boundaries_.push_back(y.size_bytes());
  // Bytes at the boundaries are noted where every block is called on its own.
  if (config_.checkpoint == CheckpointMode::kSqrt) {
    const int segments = sqrt_segments(static_cast<int>(stages.size()));
    return model_->leave(checkpoint_sequential(stages, segments, y));
  }
  for (const auto& stage : stages) {
    y = config_.checkpoint == CheckpointMode::kAll ? checkpoint(stage, y) : stage(y);
    boundaries_.push_back(y.size_bytes());
  }
  return model_->leave(y);
}

Tensor StepRunner::loss_of(const nn::Batch& batch) {
  const PhaseScope phase(Phase::kForward);
  std::optional<AutocastScope> autocast;
  if (const auto lower = lower_type(config_.precision)) autocast.emplace(*lower);
  return model_->loss(run_model(batch.input), batch.target);
}

// --- The step ------------------------------------------------------------------------------------

// Leaves the sum of the micro-batches' gradients, each by its share of the batch, and the loss.
void StepRunner::accumulate_gradients() {
  const DeviceRandomScope draws(random_state_);
  loss_.zero_();
  for (std::int64_t done = 0; done < config_.batch; done += micro_) {
    const std::int64_t count = std::min(micro_, config_.batch - done);
    const double share = static_cast<double>(count) / static_cast<double>(config_.batch);
    const nn::Batch batch = load(done, count);
    const Tensor loss = loss_of(batch);
    Tensor scaled = count == config_.batch ? loss : loss * share;
    if (scaler_) scaled = scaler_->scale(scaled);
    scaled.backward();
    const NoGradScope no_grad;
    loss_.add_(loss, share);
  }
}

// And drops the gradients.
void StepRunner::update() {
  const PhaseScope phase(Phase::kOptimizerStep);
  if (scaler_) {
    scaler_->step(*optimizer_);
    scaler_->update();
  } else {
    optimizer_->step();
  }
  optimizer_->zero_grad();
}

StepResult StepRunner::step() {
  const memory::IterationScope iteration(steps_);
  Generator& generator = default_generator(allocator_.device());
  const Generator::State before = generator.state();
  failed_in_update_ = false;
  try {
    accumulate_gradients();
  } catch (...) {
    optimizer_->zero_grad();
    generator.set_state(before);
    throw;
  }
  failed_in_update_ = true;
  update();
  failed_in_update_ = false;
  ++steps_;
  batch_ = {};  // not held over the end: steps end with the same blocks in use
  allocator_.mark_step();
  return {loss_, scaler_ ? scaler_->skipped() : Tensor(), micro_};
}

}  // namespace headroom::train
