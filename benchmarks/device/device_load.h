// DeviceLoad: keeps a device busy on a stream of its own while something else is timed.
//
//   DeviceLoad load(device, 50);
//   load.start();                 // some 50 ms of work, queued
//   ... a call ...
//   load.finish();
#pragma once

#include <cstdint>

#include "headroom/device/device.h"

namespace headroom::cli {

class DeviceLoad {
 public:
  // Finds out how much work takes `wanted_ms`. Throws Error when the device refuses.
  DeviceLoad(device::Device& device, double wanted_ms);
  DeviceLoad(const DeviceLoad&) = delete;
  DeviceLoad& operator=(const DeviceLoad&) = delete;
  ~DeviceLoad();

  // How long a load takes; 0 when the device does its work before a call returns, so that it
  // cannot be kept busy.
  [[nodiscard]] double duration_ms() const noexcept { return duration_ms_; }

  void start();
  void finish();

 private:
  void queue(std::uint64_t fills);
  [[nodiscard]] double timed_ms(std::uint64_t fills);

  device::Device& device_;
  std::uint64_t size_bytes_;
  device::DeviceAddress memory_ = 0;
  device::StreamId stream_{};
  std::uint64_t fills_ = 0;
  double duration_ms_ = 0;
};

}  // namespace headroom::cli
