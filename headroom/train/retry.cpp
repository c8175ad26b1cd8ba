#include "headroom/train/retry.h"

#include <optional>

#include "headroom/base/bytes.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/internal/planned_run.h"
#include "headroom/train/remedies.h"

namespace headroom::train {
namespace {

std::string shortage_line(const StepRunner& runner, const memory::OutOfMemory& error) {
  return "out of memory with micro-batches of " + std::to_string(runner.micro_batch()) +
         ": a request of " + format_bytes(error.report().account.asked_bytes) + " failed";
}

StepConfig as_it_runs(const StepRunner& runner) {
  StepConfig config = runner.config();
  config.accumulate = (config.batch + runner.micro_batch() - 1) / runner.micro_batch();
  return config;
}

// Under the runner's own limit, whatever the options say.
PlanOptions bounded_as(const StepRunner& runner, PlanOptions options) {
  const memory::Allocator& allocator = runner.allocator();
  options.limit_bytes = allocator.limit();
  options.device = &allocator.device();
  if (options.settings.empty() && !allocator.settings().paged) {
    options.settings = "backend:native";
  }
  return options;
}

// The next thing to try; nothing when there is none.
std::optional<std::string> make_room(StepRunner& runner,
                                     const PlanOptions& options,
                                     bool was_trimmed) {
  const std::uint64_t freed = runner.allocator().empty_cache();
  const StepConfig config = as_it_runs(runner);
  const bool may_fit = internal::quick_run(config, options).shortage.empty();
  if (freed > 0 && !was_trimmed && may_fit) {
    return format_bytes(freed) + " of cached memory was given back; the step runs again";
  }
  const std::int64_t micro = runner.micro_batch();
  if (micro == 1) return std::nullopt;
  const std::optional<StepConfig> smaller = smaller_pieces(config, options);
  const std::int64_t pieces = smaller ? smaller->accumulate : config.batch;
  runner.set_micro_batch((config.batch + pieces - 1) / pieces);
  return "now with micro-batches of " + std::to_string(runner.micro_batch()) +
         (smaller ? ", planned to fit," : ", the smallest,") + " summed to the same batch of " +
         std::to_string(config.batch);
}

}  // namespace

StepResult with_retry(StepRunner& runner,
                      std::vector<std::string>& told,
                      const PlanOptions& options) {
  for (bool was_trimmed = false;; was_trimmed = true) {
    try {
      return runner.step();
    } catch (const memory::OutOfMemory& error) {
      if (runner.failed_in_update()) throw;  // activations are gone by then: less cannot help
      std::string line = shortage_line(runner, error);
      const std::optional<std::string> tried =
          make_room(runner, bounded_as(runner, options), was_trimmed);
      if (!tried) throw;
      told.push_back(std::move(line));
      told.push_back(*tried);
    }
  }
}

}  // namespace headroom::train
