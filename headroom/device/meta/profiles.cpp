#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cuda/cuda_device.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::device {

BackendProfile cuda_profile() {
  BackendProfile out;
  out.max_reservation_bytes = CudaDevice::kMaxReservationBytes;
  out.max_mappings = CudaDevice::kMaxMappings;
  return out;
}

BackendProfile cpu_profile() {
  return {.stands_for = DeviceKind::kCpu,
          .granularity_bytes = CpuOptions{}.granularity_bytes,
          .segment_alignment_bytes = 4_KiB,
          .max_reservation_bytes = CpuDevice::kMaxReservationBytes,
          .max_mappings = CpuDevice::kMaxMappings};
}

BackendProfile profile_of(const Device& device) {
  if (const auto* meta = dynamic_cast<const MetaDevice*>(&device)) return meta->profile();
  const Properties& is = device.properties();
  BackendProfile out = is.id.kind == DeviceKind::kCuda ? cuda_profile() : cpu_profile();
  out.granularity_bytes = is.granularity_bytes;
  out.max_reservation_bytes = is.max_reservation_bytes;
  out.has_virtual_memory = is.has_virtual_memory;
  out.multiprocessors = is.multiprocessors;
  out.architecture = is.architecture;
  return out;
}

}  // namespace headroom::device
