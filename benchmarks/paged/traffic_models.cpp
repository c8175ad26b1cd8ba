// Our own models, recorded: the same step that `headroom train` runs, on a device without memory.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "headroom/autograd/checkpoint.h"
#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/allocator.h"
#include "headroom/memory/event.h"
#include "headroom/tensor/ops/creation.h"
#include "headroom/train/plan.h"
#include "headroom/train/step.h"

#include "benchmarks/paged/generators.h"

namespace headroom::bench {
namespace {

// Writes what an allocator is asked for into traffic.
class Recorder final : public memory::EventSink {
 public:
  explicit Recorder(Traffic& traffic) : traffic_(traffic) {}

  void record(const memory::Event& event) noexcept override {
    if (event.action == memory::Action::kAlloc) {
      blocks_[event.address] = traffic_.allocate(event.size_bytes);
    } else if (event.action == memory::Action::kFreeCompleted) {
      const auto found = blocks_.find(event.address);
      if (found == blocks_.end()) return;
      traffic_.free(found->second);
      blocks_.erase(found);
    }
  }

 private:
  Traffic& traffic_;
  std::unordered_map<memory::DeviceAddress, Block> blocks_{};
};

train::StepConfig config_of(const char* model, std::int64_t batch, const char* optimizer) {
  train::StepConfig config;
  config.model.name = model;
  config.batch = batch;
  config.optimizer = optimizer;
  return config;
}

using Steps = std::function<void(train::StepRunner&)>;

void record(Traffic& traffic, const train::StepConfig& config, const Steps& run) {
  // The graph of a process is recorded by one thread at a time.
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  const auto device = train::make_plan_device({.profile = device::cuda_profile()});
  const auto allocator = memory::make_allocator(*device, train::parse_settings(""));
  Recorder recorder(traffic);
  allocator->add_sink(recorder, memory::kBlockActions);
  {
    train::StepRunner runner(config, *allocator);
    run(runner);
  }
  allocator->remove_sink(recorder);
}

void run_steps(Traffic& traffic, train::StepRunner& runner, int steps) {
  for (int step = 0; step < traffic.times(steps); ++step) {
    (void)runner.step();
    traffic.mark_step();
  }
}

void resnet18(Traffic& traffic) {
  record(traffic, config_of("resnet18", 16, "momentum"), [&](train::StepRunner& runner) {
    run_steps(traffic, runner, 12);
  });
}

void resnet50(Traffic& traffic) {
  record(traffic, config_of("resnet50", 16, "momentum"), [&](train::StepRunner& runner) {
    run_steps(traffic, runner, 8);
  });
}

// Micro-batches of any size, as where examples are dropped.
void resnet18_ragged(Traffic& traffic) {
  record(traffic, config_of("resnet18", 24, "momentum"), [&](train::StepRunner& runner) {
    for (int step = 0; step < traffic.times(12); ++step) {
      runner.set_micro_batch(static_cast<std::int64_t>(traffic.random().between(5, 24)));
      (void)runner.step();
      traffic.mark_step();
    }
  });
}

void gpt2(Traffic& traffic) {
  record(traffic, config_of("gpt2", 8, "adamw"), [&](train::StepRunner& runner) {
    run_steps(traffic, runner, 8);
  });
}

Tensor run_blocks(train::Model& model, Tensor y, bool checkpoints) {
  for (nn::Module* block : model.blocks()) {
    const auto stage = [block](const Tensor& in) { return (*block)(in); };
    y = checkpoints ? checkpoint(stage, y) : stage(y);
  }
  return y;
}

// Sequences of any length.
template <bool kCheckpoints>
void gpt2_ragged(Traffic& traffic) {
  constexpr std::int64_t kBatch = 8;
  record(traffic, config_of("gpt2", kBatch, "adamw"), [&](train::StepRunner& runner) {
    train::Model& model = runner.model();
    for (int step = 0; step < traffic.times(16); ++step) {
      const auto length = static_cast<std::int64_t>(traffic.random().between(32, 1024));
      const TensorOptions options{.dtype = kI64, .device = runner.allocator()};
      const Tensor tokens = zeros({kBatch, length}, options);
      const Tensor output = model.leave(run_blocks(model, model.enter(tokens), kCheckpoints));
      model.loss(output, tokens).backward();
      runner.optimizer().step();
      runner.optimizer().zero_grad();
      traffic.mark_step();
    }
  });
}

constexpr std::array kModels{
    Generator{"models", "resnet18", "our ResNet-18, 16 images", resnet18},
    Generator{
        "models", "resnet18_ragged", "our ResNet-18, micro-batches of 5 to 24", resnet18_ragged},
    Generator{"models", "resnet50", "our ResNet-50, 16 images", resnet50},
    Generator{"models", "gpt2", "our GPT-2, 8 sequences", gpt2},
    Generator{"models", "gpt2_ragged", "our GPT-2, 32 to 1,024 tokens", gpt2_ragged<false>},
    Generator{
        "models", "gpt2_checkpointed", "the same, every block checkpointed", gpt2_ragged<true>},
};

}  // namespace

std::span<const Generator> models_traffic() { return kModels; }

}  // namespace headroom::bench
