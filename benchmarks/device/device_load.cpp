#include "benchmarks/device/device_load.h"

#include <algorithm>
#include <chrono>

#include "headroom/base/bytes.h"

#include "benchmarks/device/device_must.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Fills that take long enough to be queued faster than they run.
std::uint64_t load_bytes(const device::Device& device) {
  const bool is_card = device.id().kind == device::DeviceKind::kCuda;
  return std::min(is_card ? 512_MiB : 32_MiB, device.properties().total_bytes / 16);
}

}  // namespace

DeviceLoad::DeviceLoad(device::Device& device, double wanted_ms)
    : device_(device), size_bytes_(load_bytes(device)) {
  if (wanted_ms <= 0 || device.id().kind == device::DeviceKind::kMeta) return;
  memory_ = must(device_.allocate_segment(size_bytes_));
  stream_ = must(device_.create_stream());
  constexpr std::uint64_t kTrial = 8;
  constexpr double kMost = 10'000;
  (void)timed_ms(kTrial);  // the first finds everything cold
  const double one_ms = std::max(timed_ms(kTrial) / kTrial, 1e-4);
  fills_ = static_cast<std::uint64_t>(std::clamp(wanted_ms / one_ms, 1.0, kMost));
  duration_ms_ = timed_ms(fills_);
}

DeviceLoad::~DeviceLoad() {
  if (memory_ == 0) return;
  (void)device_.synchronize_stream(stream_);
  (void)device_.release_stream(stream_);
  (void)device_.free_segment(memory_);
}

void DeviceLoad::start() { queue(fills_); }

void DeviceLoad::finish() {
  if (memory_ != 0) must(device_.synchronize_stream(stream_));
}

void DeviceLoad::queue(std::uint64_t fills) {
  for (std::uint64_t i = 0; i < fills; ++i) {
    must(device_.fill(memory_, static_cast<std::uint8_t>(i), size_bytes_, stream_));
  }
}

double DeviceLoad::timed_ms(std::uint64_t fills) {
  const auto begin = Clock::now();
  queue(fills);
  finish();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace headroom::cli
