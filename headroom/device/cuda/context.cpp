#include "headroom/device/cuda/internal/context.h"

#include <array>

#include "headroom/base/bytes.h"
#include "headroom/device/cuda/internal/nvml.h"
#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

// By the card's index; 0 is not known. A primary context is one for the whole process.
constinit std::array<std::atomic<std::uint64_t>, 64> context_bytes_of_card{};

// Others come and go on the card meanwhile: what no context takes is not one's.
void record_context_bytes(int index, std::uint64_t before, std::uint64_t after) noexcept {
  constexpr std::uint64_t kLeast = 16_MiB;
  constexpr std::uint64_t kMost = 4_GiB;
  const std::uint64_t taken = after > before ? after - before : 0;
  const auto at = static_cast<std::size_t>(index);
  if (at < context_bytes_of_card.size() && taken >= kLeast && taken <= kMost) {
    context_bytes_of_card[at].store(taken, std::memory_order_relaxed);
  }
}

}  // namespace

std::uint64_t CudaContext::context_bytes() const noexcept {
  const auto at = static_cast<std::size_t>(index_);
  return at < context_bytes_of_card.size()
             ? context_bytes_of_card[at].load(std::memory_order_relaxed)
             : 0;
}

DeviceResult<CUcontext> CudaContext::retain() noexcept {
  unsigned flags = 0;
  int is_active = 0;
  const bool is_new =
      driver_.cuDevicePrimaryCtxGetState(device_, &flags, &is_active) == CUDA_SUCCESS &&
      is_active == 0;
  const auto before = is_new ? nvml_used_bytes(pci_bus_id_) : std::nullopt;
  CUcontext context = nullptr;
  if (auto retained = call(driver_.cuDevicePrimaryCtxRetain, &context, device_); !retained) {
    return Unexpected(retained.error());
  }
  const auto after = before ? nvml_used_bytes(pci_bus_id_) : std::nullopt;
  if (before && after) record_context_bytes(index_, *before, *after);
  return context;
}

DeviceResult<CUcontext> CudaContext::get() noexcept {
  if (CUcontext context = context_.load(std::memory_order_acquire)) return context;
  const std::scoped_lock lock(mutex_);
  if (CUcontext context = context_.load(std::memory_order_acquire)) return context;
  const auto context = retain();
  if (context) context_.store(*context, std::memory_order_release);
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
