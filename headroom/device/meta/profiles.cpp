#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::device {

BackendProfile cuda_profile() noexcept {
  static_assert(BackendProfile{}.max_reservation_bytes == CudaDevice::kMaxReservationBytes &&
                BackendProfile{}.max_mappings == CudaDevice::kMaxMappings);
  return {};
}

BackendProfile cpu_profile() noexcept {
  return {.stands_for = DeviceKind::kCpu,
          .granularity_bytes = CpuOptions{}.granularity_bytes,
          .segment_alignment_bytes = 4_KiB,
          .max_reservation_bytes = CpuDevice::kMaxReservationBytes,
          .max_mappings = CpuDevice::kMaxMappings};
}

}  // namespace headroom::device
