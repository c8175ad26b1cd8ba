// Allocates and records until it is killed: kill_program FILE. Each line it prints is a number of
// events that were in the file before the line was; what comes after may be lost.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/trace/record/file_recorder.h"

namespace {

using namespace headroom;

// Counts what goes by. Both stand under the allocator's lock.
class Counter final : public memory::EventSink {
 public:
  explicit Counter(memory::EventSink& next) : next_(next) {}
  void record(const memory::Event& event) noexcept override {
    next_.record(event);
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  std::atomic<std::uint64_t> count{0};

 private:
  memory::EventSink& next_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_TiB});
  memory::CachingAllocator allocator(*device);
  trace::FileRecorder recorder({.path = arguments[1],
                                .interval = std::chrono::milliseconds(5),
                                .hrt = {.events_per_block = 1'024},
                                .stacks = {.mode = trace::StackMode::kOnAllocation}});
  Counter counter(recorder.channel({}));
  allocator.add_sink(counter);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&allocator, t] {
      for (std::uint64_t i = 0;; ++i) {
        allocator.free(allocator.allocate(512 * (1 + i % 97) + static_cast<std::uint64_t>(t)));
        // Slower than the disk, so that nothing is dropped.
        if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
  }
  for (;;) {
    const std::uint64_t before = counter.count.load(std::memory_order_acquire);
    recorder.flush();
    std::printf("%llu\n", static_cast<unsigned long long>(before));
    std::fflush(stdout);
  }
}
