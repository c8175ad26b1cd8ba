// A training step is queued once, and what was queued is queued again: as a captured graph would be
// replayed, with other data, another learning rate and other random numbers. Bit for bit what the
// steps themselves compute.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "headroom/autograd.h"
#include "headroom/base/bytes.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/nn/optim/optimizer.h"
#include "headroom/tensor.h"
#include "headroom/tensor/device_random.h"
#include "headroom/train/step.h"

#include "tests/support/async_device.h"

namespace headroom::train {
namespace {

using headroom::testing::AsyncDevice;
using headroom::testing::AsyncLog;

// From the last of the warm-up on a step is logged; by then memory and the optimiser's list are as
// they stay.
constexpr int kWarmUp = 4;
constexpr int kReplays = 3;

// The warm-up has one learning rate, the replays have one each.
double lr_at(int step) { return step < kWarmUp ? 0.01 : 0.01 / (step - kWarmUp + 2); }

class Logged {
 public:
  Logged(AsyncDevice& device, AsyncLog& log) : device_(device) { device_.set_log(&log); }
  ~Logged() { device_.set_log(nullptr); }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

 private:
  AsyncDevice& device_;
};

struct StepNumbers {
  std::vector<AsyncLog::Bytes> uploads{};
  double loss = 0;
  std::vector<std::vector<double>> parameters{};
};

std::vector<std::vector<double>> numbers_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<double>> out;
  for (const Tensor& tensor : tensors) out.push_back(tensor.to_doubles());
  return out;
}

// Every step by itself, with what it copied to the device.
std::vector<StepNumbers> run_eagerly(const StepConfig& config) {
  AsyncDevice device;
  const auto allocator = memory::make_allocator(device);
  StepRunner runner(config, *allocator);
  std::vector<StepNumbers> out;
  for (int i = 0; i < kWarmUp + kReplays; ++i) {
    runner.optimizer().set_lr(lr_at(i));
    AsyncLog log;
    const StepResult result = [&] {
      const Logged logged(device, log);
      return runner.step();
    }();
    out.push_back({.uploads{log.uploads().begin(), log.uploads().end()},
                   .loss = result.loss(),
                   .parameters = numbers_of(runner.model().parameters())});
  }
  return out;
}

void expect_replays_are_steps(const StepConfig& config) {
  const std::vector<StepNumbers> wanted = run_eagerly(config);
  AsyncDevice device;
  const auto allocator = memory::make_allocator(device);
  StepRunner runner(config, *allocator);
  runner.optimizer().set_lr(lr_at(0));
  for (int i = 1; i < kWarmUp; ++i) (void)runner.step();
  AsyncLog log;
  const StepResult result = [&] {
    const Logged logged(device, log);
    return runner.step();
  }();
  EXPECT_EQ(result.loss(), wanted[kWarmUp - 1].loss);
  ASSERT_EQ(log.uploads().size(), 2U);  // the examples and their targets
  ASSERT_GT(log.launches(), 10U);
  for (int i = kWarmUp; i < kWarmUp + kReplays; ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const StepNumbers& own = wanted[static_cast<std::size_t>(i)];
    ASSERT_NE(own.uploads, wanted[kWarmUp - 1].uploads);
    for (std::size_t k = 0; k < log.uploads().size(); ++k) log.uploads()[k] = own.uploads[k];
    runner.optimizer().set_lr(lr_at(i));
    runner.optimizer().write_lr();
    const std::uint64_t seen = device.launches().seen();
    log.replay();
    EXPECT_EQ(device.launches().seen(), seen);  // nothing was launched but what was logged
    EXPECT_EQ(result.loss(), own.loss);
    EXPECT_EQ(numbers_of(runner.model().parameters()), own.parameters);
  }
}

TEST(AsyncReplay, OfAStepGivesTheBitsOfTheStepItself) {
  const ModelConfig mlp{.name = "mlp", .depth = 3, .width = 16};
  const ModelConfig gpt{.name = "gpt2-tiny", .depth = 2, .width = 32, .seq = 8};
  for (const StepConfig& config : {
           StepConfig{.model = mlp, .batch = 8, .optimizer = "momentum"},
           StepConfig{.model = mlp, .batch = 8, .accumulate = 3, .optimizer = "adamw"},
           StepConfig{
               .model = gpt, .batch = 3, .checkpoint = CheckpointMode::kAll, .optimizer = "adam"},
           StepConfig{.model = gpt, .batch = 2, .precision = Precision::kF16, .optimizer = "adamw"},
       }) {
    SCOPED_TRACE(config.model.name + ", " + config.optimizer);
    expect_replays_are_steps(config);
  }
}

// --- Random numbers ------------------------------------------------------------------------------

// A layer with dropout whose step draws through a number on the device.
class DropoutStep {
 public:
  explicit DropoutStep(memory::Allocator& allocator)
      : x_(ones({16, 32}, {.device = allocator})),
        weight_(full({32, 8}, 0.5, {.device = allocator, .requires_grad = true})),
        state_(zeros({2}, {.dtype = kI64, .device = allocator})),
        optimizer_({weight_}, {.lr = 0.01}) {}

  [[nodiscard]] const Tensor& state() const { return state_; }
  [[nodiscard]] std::vector<double> weight() const { return weight_.to_doubles(); }
  // Within a DeviceRandomScope of state().
  void run() {
    const Tensor y = matmul(dropout(x_, 0.5), weight_);
    (y * y).mean().backward();
    optimizer_.step();
    optimizer_.zero_grad();
  }

 private:
  Tensor x_;
  Tensor weight_;
  Tensor state_;
  nn::Adam optimizer_;
};

TEST(AsyncReplay, DrawsTheNumbersOfItsFirstCounter) {
  AsyncDevice eager_device({.index = 8});
  AsyncDevice device;
  const auto eager_allocator = memory::make_allocator(eager_device);
  const auto allocator = memory::make_allocator(device);
  default_generator(eager_device).seed(3);
  default_generator(device).seed(3);
  DropoutStep eager(*eager_allocator);
  DropoutStep logged(*allocator);
  AsyncLog log;
  for (int i = 0; i < kWarmUp + kReplays; ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const Generator::State before = default_generator(eager_device).state();
    {
      const DeviceRandomScope draws(eager.state());
      eager.run();
    }
    // Writes where the generator is, which a replay does not move on.
    default_generator(device).set_state(before);
    const DeviceRandomScope draws(logged.state());
    if (i >= kWarmUp) {
      log.replay();
    } else if (i + 1 == kWarmUp) {
      const Logged logs(device, log);
      logged.run();
    } else {
      logged.run();
    }
    EXPECT_EQ(logged.weight(), eager.weight());
  }
}

}  // namespace
}  // namespace headroom::train
