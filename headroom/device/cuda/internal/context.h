// CudaContext: the device's primary context, and the one place where driver calls are checked.
//
//   const CudaScope scope(context);                  // the context is current in here
//   if (!scope) return scope.error();
//   return context.call(driver.cuMemFree, address);  // a DeviceResult that names the call
#pragma once

#include <atomic>
#include <cstdint>
#include <cuda.h>
#include <mutex>
#include <string>
#include <utility>

#include "headroom/device/cuda/internal/driver.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

class CudaContext {
 public:
  CudaContext(const CudaDriver& driver, int index, CUdevice device, std::string pci_bus_id) noexcept
      : driver_(driver), index_(index), device_(device), pci_bus_id_(std::move(pci_bus_id)) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] const CudaDriver& driver() const noexcept { return driver_; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }

  // Retains it on the first call that works; that takes some tenths of a second and some hundred
  // megabytes of the card.
  [[nodiscard]] DeviceResult<CUcontext> get() noexcept;
  [[nodiscard]] bool is_retained() const noexcept { return context_.load() != nullptr; }
  // The bytes of the card that the context takes, where we made it and could see; 0 otherwise. It
  // is the process's: every device of the same card answers alike.
  [[nodiscard]] std::uint64_t context_bytes() const noexcept;
  // Undoes get(). Nothing that lives in the context is used any more.
  void release() noexcept;

  template <class Pointer, class... Arguments>
  DeviceResult<void> call(const CudaFunction<Pointer>& function, Arguments... arguments) noexcept {
    return check(function(arguments...), function.name);
  }
  // The first sticky error is reported by its name; from then on the context is broken, and no
  // call is blamed for it.
  DeviceResult<void> check(CUresult result, const char* name) noexcept;
  // Fails when the context is known to be broken.
  [[nodiscard]] DeviceResult<void> check_is_whole() const noexcept;

 private:
  DeviceResult<CUcontext> retain() noexcept;

  const CudaDriver& driver_;
  const int index_;
  const CUdevice device_;
  const std::string pci_bus_id_;
  std::mutex mutex_;  // around retaining and releasing
  std::atomic<CUcontext> context_{nullptr};
  std::atomic<int> broken_by_{0};  // a CUresult; 0 is none
};

// Calls that the driver takes for unsafe while any stream of the process captures a graph in the
// strictest mode, and would break the capture for, are made in kRelaxed: they touch no stream that
// captures. What queues work in a stream is made as the thread's own mode says.
enum class CaptureMode : std::uint8_t { kOfTheThread, kRelaxed };

// Makes the context current, and puts back what was.
class CudaScope {
 public:
  explicit CudaScope(CudaContext& context, CaptureMode mode = CaptureMode::kOfTheThread) noexcept;
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;
  ~CudaScope();

  [[nodiscard]] explicit operator bool() const noexcept { return status_.has_value(); }
  [[nodiscard]] Unexpected<DeviceStatus> error() const noexcept {
    return Unexpected(status_.error());
  }

 private:
  const CudaDriver& driver_;
  DeviceResult<void> status_;
  bool is_pushed_ = false;
  bool is_relaxed_ = false;
  CUstreamCaptureMode mode_before_ = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

// Giving something back to a driver that has gone counts as success.
[[nodiscard]] inline DeviceResult<void> done_if_shut_down(DeviceResult<void> result) noexcept {
  if (!result && result.error().code == StatusCode::kShutDown) return {};
  return result;
}

}  // namespace headroom::device::internal
