#include "headroom/device/cuda/internal/properties.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/device/cuda/cuda_device.h"

namespace headroom::device::internal {
namespace {

// 0 when the driver does not know the attribute.
int attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute what) noexcept {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, what, device) == CUDA_SUCCESS ? value : 0;
}

std::uint64_t size_attribute(const CudaDriver& driver,
                             CUdevice device,
                             CUdevice_attribute what) noexcept {
  const int value = attribute(driver, device, what);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

std::uint64_t granularity(const CudaDriver& driver, CUdevice device) noexcept {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  std::size_t found = 0;
  const CUresult asked =
      driver.cuMemGetAllocationGranularity(&found, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return asked == CUDA_SUCCESS && is_power_of_two(found) ? found : 2_MiB;
}

std::vector<MemoryLevel> hierarchy(const CudaDriver& driver,
                                   CUdevice device,
                                   int multiprocessors,
                                   std::uint64_t total_bytes) {
  constexpr std::uint64_t kRegisterBytes = 4;
  constexpr std::uint64_t kSectorLineBytes = 128;
  const auto size = [&](CUdevice_attribute what) { return size_attribute(driver, device, what); };
  std::vector<MemoryLevel> levels;
  const auto add = [&](MemoryLevel level) {
    if (level.size_bytes > 0) levels.push_back(std::move(level));
  };
  add({.name = "registers",
       .size_bytes = size(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) * kRegisterBytes,
       .instances = multiprocessors,
       .shared_by = "multiprocessor"});
  // The same memory is the L1 cache, less what kernels take of it.
  add({.name = "shared memory",
       .size_bytes = size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
       .instances = multiprocessors,
       .shared_by = "multiprocessor"});
  add({.name = "L2",
       .size_bytes = size(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
       .line_bytes = kSectorLineBytes,
       .shared_by = "device"});
  add({.name = "global memory", .size_bytes = total_bytes, .shared_by = "device"});
  return levels;
}

}  // namespace

Result<CudaDescription, std::string> describe_cuda_device(const CudaDriver& driver, int index) {
  CudaDescription found;
  std::array<char, 256> name{};
  std::array<char, 32> pci_bus_id{};
  std::size_t total_bytes = 0;
  CUresult asked = driver.cuDeviceGet(&found.device, index);
  if (asked == CUDA_SUCCESS) {
    asked = driver.cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), found.device);
  }
  if (asked == CUDA_SUCCESS) asked = driver.cuDeviceTotalMem(&total_bytes, found.device);
  if (asked != CUDA_SUCCESS) {
    return Unexpected(to_string(DeviceId{DeviceKind::kCuda, index}) + ": " +
                      to_status(driver, asked, "the driver does not describe it").detail);
  }
  if (driver.cuDeviceGetPCIBusId(pci_bus_id.data(),
                                 static_cast<int>(pci_bus_id.size() - 1),
                                 found.device) == CUDA_SUCCESS) {
    found.pci_bus_id = pci_bus_id.data();
  }
  const auto ask = [&](CUdevice_attribute what) { return attribute(driver, found.device, what); };
  found.can_be_read_by_network =
      ask(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  found.can_be_read_by_processes =
      ask(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  const int multiprocessors = std::max(ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1);
  found.properties = {
      .id = {DeviceKind::kCuda, index},
      .name = name.data(),
      .total_bytes = total_bytes,
      .granularity_bytes = granularity(driver, found.device),
      .max_reservation_bytes = CudaDevice::kMaxReservationBytes,
      .multiprocessors = multiprocessors,
      .architecture = "sm_" + std::to_string(ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) +
                      std::to_string(ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)),
      .host_accessible = false,
      .has_virtual_memory = ask(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0,
      .hierarchy = hierarchy(driver, found.device, multiprocessors, total_bytes)};
  return found;
}

}  // namespace headroom::device::internal
