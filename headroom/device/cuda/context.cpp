#include "headroom/device/cuda/internal/context.h"

#include "headroom/device/internal/status.h"

namespace headroom::device::internal {

DeviceResult<CUcontext> CudaContext::get() noexcept {
  if (CUcontext context = context_.load(std::memory_order_acquire)) return context;
  const std::scoped_lock lock(mutex_);
  if (CUcontext context = context_.load(std::memory_order_acquire)) return context;
  CUcontext context = nullptr;
  if (auto retained = call(driver_.cuDevicePrimaryCtxRetain, &context, device_); !retained) {
    return Unexpected(retained.error());
  }
  context_.store(context, std::memory_order_release);
  return context;
}

void CudaContext::release() noexcept {
  const std::scoped_lock lock(mutex_);
  if (context_.exchange(nullptr) != nullptr) {
    (void)driver_.cuDevicePrimaryCtxRelease(device_);  // a driver that has gone has released it
  }
}

DeviceResult<void> CudaContext::check(CUresult result, const char* name) noexcept {
  if (result == CUDA_SUCCESS) return {};
  if (is_sticky(result)) {
    int none = 0;
    if (!broken_by_.compare_exchange_strong(none, static_cast<int>(result))) {
      return check_is_whole();
    }
  }
  return Unexpected(to_status(driver_, result, name));
}

DeviceResult<void> CudaContext::check_is_whole() const noexcept {
  const int broken_by = broken_by_.load(std::memory_order_relaxed);
  if (broken_by == 0) return {};
  return fail(StatusCode::kFailed,
              "the context is broken by an earlier error",
              0,
              0,
              std::int64_t{broken_by});
}

CudaScope::CudaScope(CudaContext& context, CaptureMode mode) noexcept
    : driver_(context.driver()), status_(context.check_is_whole()) {
  if (!status_) return;
  const auto ours = context.get();
  if (!ours) {
    status_ = Unexpected(ours.error());
    return;
  }
  CUcontext current = nullptr;
  // Asking is much cheaper than pushing and popping, and mostly it is the one already.
  if (driver_.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != *ours) {
    status_ = context.call(driver_.cuCtxPushCurrent, *ours);
    if (!status_) return;
    is_pushed_ = true;
  }
  if (mode == CaptureMode::kRelaxed) {
    mode_before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    is_relaxed_ = driver_.cuThreadExchangeStreamCaptureMode(&mode_before_) == CUDA_SUCCESS;
  }
}

CudaScope::~CudaScope() {
  if (is_relaxed_) (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_before_);
  if (is_pushed_) {
    CUcontext ours = nullptr;
    (void)driver_.cuCtxPopCurrent(&ours);
  }
}

}  // namespace headroom::device::internal
