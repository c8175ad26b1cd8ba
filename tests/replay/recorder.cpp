#include "tests/replay/recorder.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"

#include "tests/trace/samples.h"

namespace headroom::replay::testing {
namespace {

using memory::DeviceAddress;
using memory::StreamId;

class Log final : public memory::EventSink {
 public:
  void record(const memory::Event& event) noexcept override {
    events.push_back({.action = event.action,
                      .address = event.address,
                      .size_bytes = event.size_bytes,
                      .stream = event.stream});
  }
  std::vector<memory::testing::RecordedEvent> events;
};

std::string settings_of(const TrafficOptions& options) {
  std::string text = options.conf;
  if (options.limit_share < 1.0) {
    if (!text.empty()) text += ",";
    text += "per_process_memory_fraction:" + std::to_string(options.limit_share);
  }
  return text;
}

memory::AllocatorConfig config_of(const TrafficOptions& options) {
  const auto parsed = memory::parse_config(settings_of(options), {.version = options.version});
  if (!parsed) throw Error(parsed.error());
  return parsed->config;
}

class Traffic {
 public:
  Traffic(device::Device& device,
          const TrafficOptions& options,
          unsigned seed,
          std::function<void(StreamId)> finish)
      : device_(device),
        options_(options),
        finish_(std::move(finish)),
        allocator_(device, {.config = config_of(options), .version = options.version}),
        random_(seed) {
    allocator_.add_sink(log_);
    streams_.push_back(StreamId::kDefault);
    while (static_cast<int>(streams_.size()) < options.streams) {
      streams_.push_back(device.create_stream().value());
    }
  }

  Recorded run() {
    for (int i = 0; i < options_.steps; ++i) step();
    Recorded out;
    out.statistics = allocator_.statistics();
    out.final_segments = allocator_.segments();
    allocator_.remove_sink(log_);
    out.events = std::move(log_.events);
    out.settings = settings_of(options_);
    out.empty_caches = empty_caches_;
    return out;
  }

 private:
  double chance() { return std::uniform_real_distribution<>(0, 1)(random_); }
  std::size_t below(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }

  void step() {
    if (chance() < options_.empty_cache) {
      allocator_.empty_cache();
      ++empty_caches_;
    }
    if (!held_streams_.empty() && chance() < 0.3) {
      const std::size_t i = below(held_streams_.size());
      finish_(held_streams_[i]);
      held_streams_.erase(held_streams_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    // Waves: now more comes than goes, now less.
    const bool grows = chance() < ((steps_++ / 200) % 2 == 0 ? 0.62 : 0.40);
    if (blocks_.empty() || grows) {
      allocate();
    } else {
      free_one();
    }
  }

  // Small ones mostly, a few sizes again and again, and now and then a large one.
  std::uint64_t size() {
    const double kind = chance();
    if (kind < 0.45) return 1 + below(300'000);
    if (kind < 0.60) return (1 + below(6)) * 1_MiB;
    if (kind < 0.92) return 1 + below(12_MiB);
    return 1 + below(options_.largest_bytes);
  }

  void allocate() {
    const auto block = allocator_.try_allocate(size(), streams_[below(streams_.size())]);
    if (block) {
      blocks_.push_back(*block);
    } else if (chance() < 0.5) {  // as a program that catches it would
      for (int i = 0; i < 5 && !blocks_.empty(); ++i) free_one();
      if (options_.empty_cache > 0 && chance() < 0.5) {
        allocator_.empty_cache();
        ++empty_caches_;
      }
    }
  }

  void free_one() {
    const std::size_t i = below(blocks_.size());
    const DeviceAddress block = blocks_[i];
    blocks_[i] = blocks_.back();
    blocks_.pop_back();
    if (chance() < options_.hold) {
      const StreamId stream = device_.create_stream().value();
      (void)allocator_.record_stream(block, stream);
      held_streams_.push_back(stream);
    }
    allocator_.free(block);
  }

  device::Device& device_;
  TrafficOptions options_;
  std::function<void(StreamId)> finish_;
  memory::CachingAllocator allocator_;
  std::mt19937_64 random_;
  Log log_;
  std::vector<StreamId> streams_;
  std::vector<StreamId> held_streams_;
  std::vector<DeviceAddress> blocks_;
  int steps_ = 0;
  int empty_caches_ = 0;
};

}  // namespace

trace::Trace Recorded::trace(std::size_t first) const {
  return trace::testing::trace_of(
      std::span(events).subspan(std::min(first, events.size())), final_segments, settings);
}

Recorded record_traffic(const TrafficOptions& options, unsigned seed) {
  const auto device = device::MetaDevice::create(
      {.capacity_bytes = options.card_bytes, .events = device::EventCompletion::kByHand});
  return Traffic(*device,
                 options,
                 seed,
                 [&](StreamId stream) { (void)device->complete_events(stream); })
      .run();
}

Recorded record_on_cpu(const TrafficOptions& options, unsigned seed) {
  const auto device = device::CpuDevice::create({.capacity_bytes = options.card_bytes});
  return Traffic(*device, options, seed, [](StreamId) {}).run();
}

}  // namespace headroom::replay::testing
