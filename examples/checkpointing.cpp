// What does checkpointing save, and what does it cost?
//
// "Applying Gradient Checkpointing to Reduce Memory" of "Memory Management on GPU": DeepNet with
// and without, at its own size, where nothing is saved, and at two larger ones. On a device that
// has addresses only: the bytes are those of a run. The time is counted in layers run: forward
// once, backward as two, and what is computed again.
#include <cstdio>

#include <headroom/memory.h>

#include "deepnet.h"

using namespace headroom;

namespace {

struct Size {
  std::int64_t dim;
  int blocks;
  std::int64_t batch;
};

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void measure(const Size& size, bool checkpointed) {
  empty_cache();
  reset_peak_memory_stats();
  DeepNet model(size.dim, size.blocks, checkpointed);
  const Tensor x = randn({size.batch, size.dim});
  const std::uint64_t before = memory_allocated();
  const Tensor y = model(x);
  const std::uint64_t kept = memory_allocated() - before;
  y.sum().backward();
  std::printf("Checkpoint=%-5s  kept by forward %6.1f MB   peak=%.1f MB\n",
              checkpointed ? "true" : "false",
              megabytes(kept),
              megabytes(max_memory_allocated()));
}

}  // namespace

int main() {
  device::registry().add(device::MetaDevice::create({.capacity_bytes = 80_GiB}));
  set_device("meta:0");
  for (const Size& size : {Size{512, 20, 128}, Size{512, 20, 16384}, Size{1024, 64, 8192}}) {
    std::printf("DeepNet(%lld, %d), batch %lld\n",
                static_cast<long long>(size.dim),
                size.blocks,
                static_cast<long long>(size.batch));
    for (const bool checkpointed : {false, true}) measure(size, checkpointed);
  }
}
