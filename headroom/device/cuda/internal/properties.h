// Properties of a card that the driver tells without a context.
#pragma once

#include <string>

#include "headroom/device/cuda/internal/driver.h"
#include "headroom/device/types.h"

namespace headroom::device::internal {

struct CudaDescription {
  CUdevice device = 0;
  Properties properties{};
  std::string pci_bus_id;
  bool can_be_read_by_network = false;    // its mapped pages, by GPUDirect RDMA
  bool can_be_read_by_processes = false;  // others, through file descriptors
};

// The error is one line.
[[nodiscard]] Result<CudaDescription, std::string> describe_cuda_device(const CudaDriver& driver,
                                                                        int index);

}  // namespace headroom::device::internal
