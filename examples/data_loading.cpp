// Should I empty the cache after every batch?
//
// The third snippet of "How can PyTorch effectively manage GPU memory?": a loader, a training step,
// the batch dropped, and torch.cuda.empty_cache(). The end of the scope frees the batch, so
// emptying gains nothing between equal batches: the same memory is asked of the device again, each
// time.
// `--times` prints what that costs here.
#include <chrono>
#include <cstdio>
#include <cstring>

#include <headroom/memory.h>
#include <headroom/nn.h>

using namespace headroom;

namespace {

// 10,000 examples of 100 numbers and a class, made when they are asked for.
struct Samples : nn::Dataset {
  [[nodiscard]] std::int64_t size() const override { return 10000; }
  [[nodiscard]] nn::ExampleSpec spec() const override {
    return {{DType::kF32, {100}}, {DType::kI64, {}}};
  }
  void write(std::int64_t i, void* input, void* target) const override {
    const std::int64_t label = i % 10;
    *static_cast<std::int64_t*>(target) = label;
    for (int k = 0; k < 100; ++k) {
      static_cast<float*>(input)[k] = static_cast<float>((i * 7 + k) % 10 == label ? 1 : 0);
    }
  }
};

struct Run {
  std::uint64_t peak = 0;
  std::int64_t device_calls = 0;
  double milliseconds = 0;  // a batch
};

Run train(const nn::Dataset& dataset, bool empties_cache) {
  manual_seed(0);
  nn::Sequential model;
  model.emplace<nn::Linear>(100, 1024);
  model.emplace<nn::ReLU>();
  model.emplace<nn::Linear>(1024, 10);
  nn::Sgd optimizer(model.parameters(), {.lr = 0.1});
  const nn::DataLoader loader(dataset, {.batch = 512, .shuffle = true});
  empty_cache();
  reset_peak_memory_stats();
  const std::int64_t calls = allocator().statistics().num_device_alloc;
  const auto start = std::chrono::steady_clock::now();
  double loss_sum = 0;
  int batches = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const nn::Batch& batch : loader.epoch(epoch)) {
      const Tensor loss = cross_entropy(model(batch.input), batch.target);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      loss_sum += loss.item<double>();
      ++batches;
      if (empties_cache) empty_cache();
    }
  }
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  std::printf("%-26s %d batches, mean loss %.3f\n",
              empties_cache ? "with empty_cache()" : "without",
              batches,
              loss_sum / batches);
  return {.peak = max_memory_allocated(),
          .device_calls = allocator().statistics().num_device_alloc - calls,
          .milliseconds = passed.count() / batches};
}

void show(const char* what, const Run& run, bool with_times) {
  std::printf("  %-24s peak %s, %lld pages asked of the device",
              what,
              format_count(run.peak).c_str(),
              static_cast<long long>(run.device_calls));
  if (with_times) std::printf(", %.3f ms a batch", run.milliseconds);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const bool with_times = argc > 1 && std::strcmp(argv[1], "--times") == 0;
  set_device("cpu");
  const Samples dataset;
  const Run without = train(dataset, false);
  const Run with = train(dataset, true);
  show("without empty_cache()", without, with_times);
  show("with", with, with_times);
  std::printf("Training completed with optimized data loading.\n");
}
