// "Memory Management on GPU", the chapter in its order, each point as a few lines that run.
//
// On the processor, so that it runs anywhere; what needs gigabytes, on a device that has addresses
// only. Larger versions of most points are examples of their own: README.md says which.
#include <cstdio>
#include <vector>

#include <headroom/memory.h>
#include <headroom/trace.h>

#include "deepnet.h"

using namespace headroom;

namespace {

double mb(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void title(const char* text) { std::printf("\n%s\n", text); }

void caching_allocator() {
  title("The caching allocator");
  {
    const Tensor x = empty({1024, 1024});
    std::printf("  a tensor of 4 MiB:  allocated %8s   reserved %8s\n",
                format_bytes(memory_allocated()).c_str(),
                format_bytes(memory_reserved()).c_str());
  }
  std::printf("  dropped:            allocated %8s   reserved %8s\n",
              format_bytes(memory_allocated()).c_str(),
              format_bytes(memory_reserved()).c_str());
  empty_cache();
  std::printf("  empty_cache():      allocated %8s   reserved %8s\n",
              format_bytes(memory_allocated()).c_str(),
              format_bytes(memory_reserved()).c_str());
}

void fragmentation() {
  title("Fragmentation: 12 MiB are cached, and 12 MiB do not fit into them");
  std::vector<Tensor> pieces;
  pieces.reserve(5);
  for (int i = 0; i < 5; ++i) pieces.push_back(empty({1024, 1024}));  // 4 MiB each, one segment
  pieces.erase(pieces.begin() + 3, pieces.end());
  pieces.erase(pieces.begin());  // the second and third stay
  const auto stats = memory_stats();
  std::printf("  allocated %s of %s reserved, largest cached block %s\n",
              format_bytes(memory_allocated()).c_str(),
              format_bytes(memory_reserved()).c_str(),
              format_bytes(memory_account().largest_cached_bytes).c_str());
  std::printf("  active.all.current = %lld\n",
              static_cast<long long>(stats.at("active.all.current")));
  pieces.clear();
  empty_cache();
}

void history() {
  title("History");
  record_memory_history();
  { const Tensor y = relu(randn({256, 1024})); }
  const trace::Trace trace = snapshot();
  stop_recording();
  std::printf("  %zu events, each with its size, its stream and where it was asked for\n",
              trace.devices.at(0).events.size());
}

void in_place() {
  title("In-place operations");
  const Tensor x = randn({1024, 1024});
  reset_peak_memory_stats();
  x.add_(1);
  x.relu_();
  x.mul_(0.99);
  std::printf("  x.add_(1).relu_().mul_(0.99): %s more\n",
              format_bytes(max_memory_allocated() - memory_allocated()).c_str());
  const Tensor w = ones({3}, {.requires_grad = true});
  const Tensor y = square(w * 2);
  try {
    w.add_(1);
  } catch (const Error& error) {
    std::printf("  %s\n", error.what());
  }
}

// n layers of a bytes each keep n a; with k checkpoints k a + n / k a, least at k = sqrt(n).
void checkpointing_bound() {
  title("The best number of checkpoints for n layers");
  for (const int n : {4, 16, 100, 400}) {
    const int k = sqrt_segments(n);
    std::printf(
        "  n = %3d: k = %2d, %3d activations instead of %3d\n", n, k, k + (n + k - 1) / k, n);
  }
}

// Parameters, gradients, Adam's two moments: 16 P bytes; and the activations.
void peak_estimation() {
  title("Peak memory, estimated: 16 P + B L a");
  constexpr std::int64_t kDim = 512, kBatch = 16384;
  constexpr int kBlocks = 20;
  DeepNet model(kDim, kBlocks);
  const auto parameters = static_cast<double>(model.num_parameters());
  // Three tensors stay of a block: its input or sum, and the two outputs of relu.
  const double activations = static_cast<double>(kBatch) * kBlocks * 3 * kDim * 4;
  nn::Adam optimizer(model.parameters());
  const Tensor x = randn({kBatch, kDim});
  for (int i = 0; i < 2; ++i) {
    reset_peak_memory_stats();
    model(x).sum().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  const double estimate = (16 * parameters + activations) / 1e6;
  std::printf("  DeepNet(512, 20), batch 16,384: %.1f MB estimated, %.1f MB measured (%+.1f %%)\n",
              estimate,
              mb(max_memory_allocated()),
              100 * (estimate / mb(max_memory_allocated()) - 1));
}

void tracking() {
  title("Tracking a training step");
  nn::Sequential model;
  model.emplace<nn::Linear>(1024, 2048);
  model.emplace<nn::ReLU>();
  model.emplace<nn::Linear>(2048, 2048);
  model.emplace<nn::ReLU>();
  model.emplace<nn::Linear>(2048, 10);
  reset_peak_memory_stats();
  const Tensor x = randn({256, 1024});
  std::printf("  After input: %.1f MB\n", mb(memory_allocated()));
  const Tensor y = model(x);
  std::printf("  After forward: %.1f MB\n", mb(memory_allocated()));
  const Tensor loss = y.sum();
  loss.backward();
  std::printf("  After backward: %.1f MB\n", mb(memory_allocated()));
  std::printf("  Peak memory: %.1f MB\n", mb(max_memory_allocated()));
}

void checkpointing() {
  title("DeepNet(512, 20), batch 128, and batch 16,384");
  for (const std::int64_t batch : {128, 16384}) {
    for (const bool checkpointed : {false, true}) {
      reset_peak_memory_stats();
      DeepNet model(512, 20, checkpointed);
      model(randn({batch, 512})).sum().backward();
      std::printf("  Checkpoint=%s: peak=%.1f MB\n",
                  checkpointed ? "true" : "false",
                  mb(max_memory_allocated()));
    }
  }
}

void massive_mimo() {
  title("Massive MIMO: 64 antennas x 16 users x 1,000 subcarriers in complex64");
  const Tensor sample = empty({64, 16, 1000}, {.dtype = DType::kC64});
  const Tensor batch = empty({128, 64, 16, 1000}, {.dtype = DType::kC64});
  std::printf("  a sample %.3f MB, a batch of 128 %.2f GB\n",
              mb(sample.size_bytes()),
              mb(batch.size_bytes()) / 1e3);
}

}  // namespace

int main() {
  set_allocator_settings("backend:native");  // the chapter's allocator is PyTorch's
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 80_GiB}));
  set_device("cpu");
  caching_allocator();
  fragmentation();
  history();
  in_place();
  checkpointing_bound();
  set_device("meta:0");
  peak_estimation();
  tracking();
  checkpointing();
  massive_mimo();
}
