// How do I use all of it: allocator, limits, streams, categories, reports, settings?
//
// The snippets of docs/guide/memory.md, in its order, so that they compile and run.
#include <cstdio>
#include <memory>
#include <memory_resource>
#include <vector>

#include <headroom/memory.h>

using namespace headroom;

namespace {

struct Counter final : memory::EventSink {
  void record(const memory::Event& event) noexcept override {
    if (event.action == memory::Action::kSegmentAlloc) ++segments;
  }
  int segments = 0;
};

void allocate() {
  memory::Allocator& cache = allocator("cpu:0");  // the process's own, one per device
  memory::Buffer scratch(cache, 3_MiB);           // throws OutOfMemory
  memory::Array<float> weights(cache, 1024);
  weights.copy_from(std::vector<float>(1024, 0.5F));
  scratch.reset();  // or at the end of the scope
  std::printf("weights[0] = %g\n", static_cast<double>(weights.to_vector()[0]));

  memory::AllocatorResource resource(cache);  // memory the processor can touch
  std::pmr::vector<float> values(1024, &resource);
}

void own_one() {
  auto card = device::MetaDevice::create({.capacity_bytes = 80_GiB});
  memory::CachingAllocator cache(*card, {.version = memory::kPyTorch211});
  cache.configure("max_split_size_mb:128,garbage_collection_threshold:0.8");
  if (auto block = cache.try_allocate(100_GiB)) {
    cache.free(*block);
  } else {
    std::printf("%s\n", block.error().report->explanation.summary.c_str());
  }
}

void limit() {
  auto card = device::MetaDevice::create({.capacity_bytes = 80_GiB});
  memory::CachingAllocator cache(*card);
  cache.set_limit(10_GiB);         // in bytes,
  cache.set_memory_fraction(0.5);  // or as a share of the device; the last one counts
  (void)cache.reserve(1_GiB);      // ahead; without a size, all that the limit allows
  cache.trim(512_MiB);             // gives cached memory back, but for so much
  cache.empty_cache();             // gives back all that can be
  std::printf("limit %s\n", format_bytes(*cache.limit()).c_str());
}

void sleep() {
  auto host = device::CpuDevice::create({.capacity_bytes = 256_MiB});
  memory::PagedAllocator cache(*host);
  const auto weights = [&] {
    const memory::AnnotationScope scope("weights");
    return cache.allocate(128_MiB);
  }();
  cache.sleep("weights", memory::SleepContents::kKeptOnHost);  // 128 MiB are the device's again
  memory::Buffer meanwhile(cache, 192_MiB);
  meanwhile.reset();
  cache.wake("weights");  // at the same address, with the same contents
  std::printf("awake %s\n", format_bytes(cache.find_block(weights)->size_bytes).c_str());
}

void streams() {
  auto host = device::CpuDevice::create({.capacity_bytes = 256_MiB});
  memory::CachingAllocator cache(*host);
  const device::StreamId copy = *host->create_stream({});
  memory::Buffer batch(cache, 16_MiB);  // of the default stream
  host->fill(batch.address(), 0, 16_MiB, copy).value();
  batch.record_stream(copy);  // the copy stream uses it too
  batch.reset();              // handed out again once both are done
  host->synchronize_stream(copy).value();
  cache.process_events();
  std::printf("pending %s\n", format_bytes(cache.account().pending_bytes).c_str());
}

void categories() {
  memory::CachingAllocator cache(*device::registry().find("cpu:0").value());
  const memory::AnnotationScope step("step");
  const memory::AnnotationScope layer("layer3");
  const memory::CategoryScope category(memory::Category::kActivation);
  memory::Buffer activations(cache, 16_MiB);
  for (const memory::SiteBytes& site : cache.account().sites) {
    std::printf("%s %s\n", site.site.c_str(), format_bytes(site.size_bytes).c_str());
  }
}

void reports() {
  Counter counter;
  memory::CachingAllocator cache(*device::registry().find("cpu:0").value());
  cache.add_sink(counter);
  memory::PeakScope peak(cache);
  { memory::Buffer passing(cache, 16_MiB); }
  std::printf("peak %s\n", format_bytes(peak.peak_allocated()).c_str());
  std::fputs(to_text(cache.account()).c_str(), stdout);
  std::printf("segments taken: %d\n", counter.segments);
  cache.remove_sink(counter);
}

}  // namespace

int main() {
  allocate();
  own_one();
  limit();
  sleep();
  streams();
  categories();
  reports();
}
