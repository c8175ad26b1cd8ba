// My model is larger than a device. How do I spread it over two?
//
// Layers live where they are made, and what goes from one to the other is copied with `to`; the
// backward copies the gradient back. Each device has its own allocator, so each has its own limit,
// and neither could hold the whole.
#include <cstdio>

#include <headroom/memory.h>
#include <headroom/nn.h>

using namespace headroom;

namespace {

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kBatch = 64;

// Two linear layers on one device.
struct Stage : nn::Module {
  explicit Stage(const char* device)
      : place(device),
        fc1(kWidth, kWidth, true, {.device = device}),
        fc2(kWidth, kWidth, true, {.device = device}) {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return relu(fc2(relu(fc1(x.to(place))))); }

  Place place;
  nn::Linear fc1, fc2;
};

void show(const char* what) {
  std::printf("%-18s", what);
  for (const char* device : {"cpu:0", "cpu:1"}) {
    std::printf("   %s %8s, peak %8s",
                device,
                format_bytes(memory_allocated(device)).c_str(),
                format_bytes(max_memory_allocated(device)).c_str());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  // A machine with one processor can have several devices; each gets its own 20 MiB here.
  if (device::registry().count(device::DeviceKind::kCpu) < 2) {
    device::registry().add(device::CpuDevice::create({.index = 1, .capacity_bytes = 64_MiB}));
  }
  for (const char* device : {"cpu:0", "cpu:1"}) allocator(device).set_limit(24_MiB);

  try {
    const Stage first("cpu:0");
    const Stage second("cpu:0");
    for (const Stage* part : {&first, &second}) {
      for (const Tensor& p : part->parameters()) p.set_grad(zeros_like(p));
    }
  } catch (const memory::OutOfMemory& error) {
    std::printf("on one device: %s\n", error.report().explanation.summary.c_str());
  }
  empty_cache();
  for (const char* device : {"cpu:0", "cpu:1"}) reset_peak_memory_stats(device);

  Stage first("cpu:0");
  Stage second("cpu:1");
  show("on two");
  {
    const Tensor x = randn({kBatch, kWidth}, {.device = "cpu:0"});
    const Tensor loss = square(second(first(x))).mean();
    show("after forward");
    loss.backward();
    show("after backward");
  }
  const NoGradScope no_grad;
  for (const Stage* part : {&first, &second}) {
    for (const Tensor& p : part->parameters()) p.sub_(p.grad(), 0.01);
  }
  first.zero_grad();
  second.zero_grad();
  show("after the step");
}
