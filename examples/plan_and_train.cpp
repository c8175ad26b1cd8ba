// How do I know before a run that it fits, and keep it to that?
#include <cstdint>
#include <cstdio>

#include <headroom/memory.h>
#include <headroom/train.h>

using namespace headroom;

int main() {
  const train::StepConfig job{.model = {.name = "gpt2-tiny"}, .batch = 8};
  const train::Plan plan = train::plan(job);  // the same steps, on a device without memory

  memory::PagedAllocator allocator(*device::registry().find("cpu:0").value());
  allocator.set_limit(plan.peak_reserved);  // not a byte more
  train::StepRunner training(job, allocator);
  for (int i = 0; i < 10; ++i) std::printf("loss %.3f\n", training.step().loss());

  const auto peak = static_cast<std::uint64_t>(allocator.statistics().reserved_bytes.all.peak);
  std::printf("planned %s, reserved %s\n",
              format_bytes(plan.peak_reserved).c_str(),
              format_bytes(peak).c_str());
}
