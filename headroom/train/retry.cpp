#include "headroom/train/retry.h"

#include <optional>

#include "headroom/base/bytes.h"
#include "headroom/memory/out_of_memory.h"

namespace headroom::train {
namespace {

std::string shortage_line(const StepRunner& runner, const memory::OutOfMemory& error) {
  return "out of memory at a micro-batch of " + std::to_string(runner.micro_batch()) + ": " +
         format_bytes(error.report().account.asked_bytes) + " more were asked for";
}

// The next thing to try; nothing when there is none.
std::optional<std::string> make_room(StepRunner& runner, bool was_trimmed) {
  const std::uint64_t freed = runner.allocator().empty_cache();
  if (freed > 0 && !was_trimmed) return "gave " + format_bytes(freed) + " of cache back";
  const std::int64_t micro = runner.micro_batch();
  if (micro == 1) return std::nullopt;
  runner.set_micro_batch((micro + 1) / 2);
  return "micro-batch " + std::to_string(micro) + " -> " + std::to_string(runner.micro_batch()) +
         ", accumulated to the same batch of " + std::to_string(runner.config().batch);
}

}  // namespace

StepResult with_retry(StepRunner& runner, std::vector<std::string>& told) {
  for (bool was_trimmed = false;; was_trimmed = true) {
    try {
      return runner.step();
    } catch (const memory::OutOfMemory& error) {
      if (runner.failed_in_update()) throw;  // activations are gone by then: less cannot help
      std::string line = shortage_line(runner, error);
      const std::optional<std::string> tried = make_room(runner, was_trimmed);
      if (!tried) throw;
      told.push_back(std::move(line));
      told.push_back(*tried);
    }
  }
}

}  // namespace headroom::train
