#include "cli/demo/training_act.h"

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/remedies.h"
#include "headroom/train/retry.h"

namespace headroom::cli {
namespace {

using train::CheckpointMode;
using train::Precision;
using train::StepConfig;
using train::StepRunner;

constexpr std::uint64_t kTrainingCapacity = 128_MiB;
constexpr std::uint64_t kTrainingLimit = 64_MiB;

// Small enough for a processor, deep enough for its activations to be most of its memory.
StepConfig training_config() {
  return {.model = {.name = "gpt2-tiny", .depth = 8, .width = 64, .seq = 64},
          .batch = 32,
          .optimizer = "adamw",
          .lr = 1e-3};
}

// A device of its own and the default allocator over it: neither the environment nor other commands
// change a byte.
class Stage {
 public:
  explicit Stage(std::unique_ptr<device::Device> device,
                 std::optional<std::uint64_t> limit_bytes = std::nullopt)
      : device_(std::move(device)), allocator_(memory::make_allocator(*device_)) {
    allocator_->set_limit(limit_bytes);
  }

  [[nodiscard]] memory::Allocator& allocator() { return *allocator_; }
  [[nodiscard]] PeakBytes peak() const {
    const memory::Statistics stats = allocator_->statistics();
    return {.allocated = static_cast<std::uint64_t>(stats.allocated_bytes.all.peak),
            .reserved = static_cast<std::uint64_t>(stats.reserved_bytes.all.peak)};
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<memory::Allocator> allocator_;
};

std::unique_ptr<device::Device> processor() {
  return device::CpuDevice::create({.capacity_bytes = kTrainingCapacity});
}

// Trains, and looks at what is there at the end.
void measure_row(TrainingRow& row, int steps, memory::Account& account) {
  Stage stage(processor());
  {
    StepRunner runner(row.plan.config, stage.allocator());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) row.loss = runner.step().loss();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    row.seconds = passed.count() / steps;
    row.measured = stage.peak();
    account = stage.allocator().account();
  }
}

// The step fails, with its report; then with_retry finishes it.
void play_failure(TrainingAct& act) {
  Stage stage(processor(), kTrainingLimit);
  StepRunner runner(act.config, stage.allocator());
  act.parameters = runner.model().num_parameters();
  try {
    (void)runner.step();
  } catch (const memory::OutOfMemory& error) {
    act.report = train::report_text(
        error.report(), train::planned_remedies(act.config, {.limit_bytes = kTrainingLimit}));
  }
  act.retried_loss = train::with_retry(runner, act.told).loss();
}

double loss_without_limit(const StepConfig& config) {
  Stage stage(processor());
  return StepRunner(config, stage.allocator()).step().loss();
}

std::vector<TrainingRow> training_rows(const StepConfig& config) {
  std::vector<TrainingRow> rows;
  const auto add = [&](const char* name, const std::function<void(StepConfig&)>& change) {
    StepConfig changed = config;
    change(changed);
    rows.push_back({.name = name, .plan = train::plan(changed)});
    rows.back().fits = train::plan(changed, {.limit_bytes = kTrainingLimit}).fits;
  };
  add("no fix", [](StepConfig&) {});
  add("sgd, not adamw", [](StepConfig& c) {
    c.optimizer = "sgd";
    c.lr = 0.1;
  });
  add("bf16 autocast", [](StepConfig& c) { c.precision = Precision::kBF16; });
  add("checkpoint sqrt(n)", [](StepConfig& c) { c.checkpoint = CheckpointMode::kSqrt; });
  add("checkpoint all", [](StepConfig& c) { c.checkpoint = CheckpointMode::kAll; });
  add("4 micro-batches", [](StepConfig& c) { c.accumulate = 4; });
  add("all + micro-batches", [](StepConfig& c) {
    c.checkpoint = CheckpointMode::kAll;
    c.accumulate = 4;
  });
  return rows;
}

}  // namespace

TrainingAct play_training(int steps, const Progress& progress) {
  TrainingAct act{.capacity_bytes = kTrainingCapacity,
                  .limit_bytes = kTrainingLimit,
                  .steps = steps,
                  .config = training_config()};
  progress("training under a limit ...");
  play_failure(act);
  act.first_loss = loss_without_limit(act.config);
  act.rows = training_rows(act.config);
  for (TrainingRow& row : act.rows) {
    progress(fmt::format("training: {} ...", row.name));
    measure_row(row, steps, act.account);
  }
  progress("");
  return act;
}

}  // namespace headroom::cli
