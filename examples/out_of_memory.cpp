// Out of memory. What now?
//
// "Debugging CUDA Out-of-Memory Errors" of "Memory Management on GPU": a training step that does
// not fit, its report, and each fix measured. None makes the batch smaller.
#include <cstdio>

#include <headroom/memory.h>

#include "deepnet.h"

using namespace headroom;

namespace {

constexpr std::int64_t kWidth = 384;
constexpr std::int64_t kBatch = 2048;
constexpr std::uint64_t kLimit = 48_MiB;

struct Fix {
  const char* name;
  bool empties_cache = false;
  bool checkpoints = false;
  bool casts = false;
  int micro_batches = 1;
};

// One step; answers the loss.
double step(DeepNet& model, nn::Optimizer& optimizer, const Fix& fix) {
  manual_seed(1);
  const Tensor x = randn({kBatch, kWidth});
  if (fix.empties_cache) empty_cache();
  model.use_checkpoint = fix.checkpoints;
  double sum = 0;
  for (const Tensor& part : x.chunk(fix.micro_batches)) {
    Tensor loss;
    {
      const AutocastScope autocast(DType::kBF16, fix.casts);
      loss = square(model(part)).mean() / fix.micro_batches;
    }
    loss.backward();
    sum += loss.item<double>();
  }
  optimizer.step();
  optimizer.zero_grad();
  return sum;
}

void attempt(const Fix& fix, bool with_report) {
  empty_cache();
  manual_seed(0);
  DeepNet model(kWidth, 4);
  nn::Sgd optimizer(model.parameters(), {.lr = 0.01});
  reset_peak_memory_stats();
  try {
    const double loss = step(model, optimizer, fix);
    std::printf("%-28s peak allocated %8s, reserved %s, loss %.4f\n",
                fix.name,
                format_bytes(max_memory_allocated()).c_str(),
                format_bytes(max_memory_reserved()).c_str(),
                loss);
  } catch (const memory::OutOfMemory& error) {
    std::printf("%-28s out of memory\n", fix.name);
    if (with_report) std::printf("\n%s\n", error.what());
  }
}

void show(const char* what) {
  std::printf("%-12s allocated %s, reserved %s\n",
              what,
              format_bytes(memory_allocated()).c_str(),
              format_bytes(memory_reserved()).c_str());
}

}  // namespace

int main() {
  set_device("cpu");
  show("1. baseline");  // is it ours, or another process?
  attempt({.name = "2. the peak, without a limit"}, false);
  allocator().set_limit(kLimit);
  attempt({.name = "3. with a limit"}, true);
  attempt({.name = "   fix 1: empty the cache", .empties_cache = true}, false);
  attempt({.name = "   fix 2: checkpoint", .checkpoints = true}, false);
  attempt({.name = "   fix 3: mixed precision", .casts = true}, false);
  attempt({.name = "   fix 4: accumulate", .micro_batches = 4}, false);
  attempt({.name = "   all of them",
           .empties_cache = true,
           .checkpoints = true,
           .casts = true,
           .micro_batches = 4},
          false);
}
