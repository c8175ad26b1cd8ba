// Does mixed precision halve the memory?
//
// It halves the activations that matrix products keep, and adds a copy of each weight while the
// graph lives: at a small batch it costs memory, at a large one it saves nearly half. The third fix
// of "Debugging CUDA Out-of-Memory Errors" in "Memory Management on GPU", with the gradient scaler
// that f16 needs.
#include <cstdio>

#include <headroom/memory.h>

#include "deepnet.h"

using namespace headroom;

namespace {

constexpr int kSteps = 3;

// What forward keeps and what a training step takes at its peak, on a device without memory.
void measure(std::int64_t batch, AutocastMode mode) {
  set_device("meta:0");
  empty_cache();
  DeepNet model(512, 20);
  const Tensor x = randn({batch, 512});
  const std::uint64_t before = memory_allocated();
  reset_peak_memory_stats();
  Tensor loss;
  {
    const AutocastScope autocast(mode);
    loss = model(x).sum();
  }
  const std::uint64_t kept = memory_allocated() - before;
  loss.backward();
  std::printf("batch %5lld  %-4s   forward keeps %10s   peak %10s\n",
              static_cast<long long>(batch),
              mode.is_enabled ? "bf16" : "f32",
              format_bytes(kept).c_str(),
              format_bytes(max_memory_allocated()).c_str());
}

// Values: three steps of a small net, in the type and with the scaler that it needs.
void train(const char* what, AutocastMode mode) {
  set_device("cpu");
  manual_seed(0);
  DeepNet model(64, 2);
  nn::Sgd optimizer(model.parameters(), {.lr = 0.01});
  nn::GradScaler scaler;
  const Tensor x = randn({32, 64});
  const Tensor target = randn({32, 64});
  std::printf("%-18s loss", what);
  for (int i = 0; i < kSteps; ++i) {
    Tensor loss;
    {
      const AutocastScope autocast(mode);
      loss = mse_loss(model(x), target);
    }
    if (mode.lower == DType::kF16) {
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    } else {
      loss.backward();
      optimizer.step();
    }
    optimizer.zero_grad();
    std::printf(" %.4f", loss.item<double>());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 80_GiB}));
  for (const std::int64_t batch : {128, 16384}) {
    for (const bool enabled : {false, true}) measure(batch, {.is_enabled = enabled});
  }
  train("f32", {});
  train("bf16", {.is_enabled = true});
  train("f16 with a scaler", {.is_enabled = true, .lower = DType::kF16});
}
